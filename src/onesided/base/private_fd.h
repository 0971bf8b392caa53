// A forked child inherits every descriptor. If it kept a copy of our sockets, the port would stay taken and peers
// would not notice when this process dies, for as long as the child lives.
#pragma once

#include <utility>

#include "onesided/base/fd.h"

namespace onesided {

// Owns a descriptor whose copy in every forked child is replaced by /dev/null at once (the number stays taken, so that
// nothing else can be hit by a late close). A value that moves; confined to one thread at a time, forks may happen on
// any.
class PrivateFd {
 public:
  PrivateFd() = default;
  explicit PrivateFd(Fd fd);
  PrivateFd(PrivateFd&& other) noexcept = default;
  PrivateFd& operator=(PrivateFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::move(other.fd_);
    }
    return *this;
  }
  ~PrivateFd() { reset(); }

  bool valid() const { return fd_.valid(); }
  int get() const { return fd_.get(); }
  void reset() { (void)release(); }
  // Gives it away, no longer private.
  Fd release();

 private:
  Fd fd_;
};

}  // namespace onesided
