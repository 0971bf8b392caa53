// Descriptors that forked children do not keep. A child inherits every descriptor. If it kept copies of the engine's
// sockets, then until the child ends the port would remain in use and peers would not notice the end of this process.
#pragma once

#include <utility>

#include "onesided/base/fd.h"

namespace onesided {

// Owns a descriptor whose copy in every forked child is replaced by /dev/null immediately (the number remains in use,
// so that a late close cannot close another descriptor). A movable value; confined to one thread at a time; any thread
// may fork.
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
  // Releases the descriptor to the caller; it is no longer private.
  Fd release();

 private:
  Fd fd_;
};

}  // namespace onesided
