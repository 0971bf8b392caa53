// An owned file descriptor, closed exactly once.
#pragma once

#include <cstddef>
#include <utility>

namespace onesided {

// The number of descriptors that this process may have open (RLIMIT_NOFILE).
std::size_t descriptor_limit();

// Owns one file descriptor, or none (-1). A movable value; confined to one thread at a time.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  // Closes the descriptor.
  void reset();
  // A second descriptor of the same open file (close-on-exec). Invalid if the process has no descriptor left.
  Fd duplicate() const;

 private:
  int fd_ = -1;
};

}  // namespace onesided
