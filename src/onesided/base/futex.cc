#include "onesided/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace onesided {
namespace {

int operation(int op, FutexScope scope) { return scope == FutexScope::kProcess ? op | FUTEX_PRIVATE_FLAG : op; }

}  // namespace

bool futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline, FutexScope scope) {
  // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC, the clock of steady_clock on Linux.
  timespec at{};
  if (!deadline.is_never()) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.at().time_since_epoch()).count();
    at.tv_sec = ns / 1'000'000'000;
    at.tv_nsec = ns % 1'000'000'000;
  }
  const long rc = ::syscall(SYS_futex, &word, operation(FUTEX_WAIT_BITSET, scope), expected,
                            deadline.is_never() ? nullptr : &at, nullptr, FUTEX_BITSET_MATCH_ANY);
  return rc == 0 || errno != ETIMEDOUT;
}

void futex_wake_all(const std::atomic<std::uint32_t>& word, FutexScope scope) {
  ::syscall(SYS_futex, &word, operation(FUTEX_WAKE, scope), INT_MAX, nullptr, nullptr, 0);
}

}  // namespace onesided
