#include "onesided/base/private_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

#include "onesided/base/check.h"

namespace onesided {
namespace {

// Never destroyed, because descriptors may be closed while static objects are destroyed.
struct Table {
  // Held across a fork, so that in the child the set is consistent and the mutex free.
  std::mutex mutex;
  std::set<int> fds;
  Fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
};

Table& table() {
  static Table* const instance = [] {
    auto* made = new Table;
    const int rc = ::pthread_atfork([] { table().mutex.lock(); }, [] { table().mutex.unlock(); },
                                    [] {
                                      // Makes only calls that are safe between fork and exec.
                                      auto& inherited = table();
                                      for (const int fd : inherited.fds) ::dup3(inherited.null.get(), fd, O_CLOEXEC);
                                      inherited.fds.clear();
                                      inherited.mutex.unlock();
                                    });
    ONESIDED_CHECK(rc == 0, "pthread_atfork: {}", rc);
    return made;
  }();
  return *instance;
}

}  // namespace

PrivateFd::PrivateFd(Fd fd) : fd_(std::move(fd)) {
  if (!fd_.valid()) return;
  auto& all = table();
  const std::lock_guard lock(all.mutex);
  all.fds.insert(fd_.get());
}

Fd PrivateFd::release() {
  if (fd_.valid()) {
    auto& all = table();
    const std::lock_guard lock(all.mutex);
    all.fds.erase(fd_.get());
  }
  return std::move(fd_);
}

}  // namespace onesided
