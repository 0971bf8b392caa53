#include "onesided/base/fd.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace onesided {

std::size_t descriptor_limit() {
  rlimit limit{};
  // Cannot fail for a valid resource.
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<std::size_t>(limit.rlim_cur);
}

void Fd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Fd Fd::duplicate() const { return Fd(::fcntl(fd_, F_DUPFD_CLOEXEC, 0)); }

}  // namespace onesided
