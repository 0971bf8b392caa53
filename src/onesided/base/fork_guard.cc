#include "onesided/base/fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace onesided {
namespace {

std::atomic<std::uint32_t> depth{0};

const int registered = ::pthread_atfork(nullptr, nullptr, [] { depth.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint32_t fork_depth() {
  (void)registered;
  return depth.load(std::memory_order_relaxed);
}

}  // namespace onesided
