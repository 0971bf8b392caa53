// Detects a forked child. There the parent's threads do not exist and locks may be held for ever, so objects with
// threads must check before they access anything.
#pragma once

#include <cstdint>

namespace onesided {

// The number of forks between this process and the one that loaded the library. One atomic load.
std::uint32_t fork_depth();

// same_process() is true in the process that made the object and false in its forked children. A value.
class ForkGuard {
 public:
  ForkGuard() : depth_(fork_depth()) {}
  bool same_process() const { return depth_ == fork_depth(); }

 private:
  std::uint32_t depth_;
};

}  // namespace onesided
