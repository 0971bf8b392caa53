// In a forked child the threads are gone and locks may be held for ever; objects with threads must notice before
// they touch anything.
#pragma once

#include <cstdint>

namespace onesided {

// How many forks lie between this process and the one that loaded the library. One atomic load.
std::uint32_t fork_depth();

// Made in one process, false in its forked children. A value.
class ForkGuard {
 public:
  ForkGuard() : depth_(fork_depth()) {}
  bool same_process() const { return depth_ == fork_depth(); }

 private:
  std::uint32_t depth_;
};

}  // namespace onesided
