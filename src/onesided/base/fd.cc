#include "onesided/base/fd.h"

#include <fcntl.h>
#include <unistd.h>

namespace onesided {

void Fd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Fd Fd::duplicate() const { return Fd(::fcntl(fd_, F_DUPFD_CLOEXEC, 0)); }

}  // namespace onesided
