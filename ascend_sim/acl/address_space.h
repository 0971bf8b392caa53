// Device addresses are handed out in one deterministic, rising order, so that a replayed program sees the same
// relative addresses (the oracle of the pool's tests), and a freed address does not come back soon: late uses show.
#pragma once

#include <cstdint>

#include "onesided/base/mutex.h"

namespace onesided::sim {

// Reserves address ranges (no memory behind them). Internally synchronized.
class AddressSpace {
 public:
  // A range of nbytes at a multiple of `alignment` (a power of two, at least a page), with a gap behind it so that
  // overruns fault; at `wanted` when that is given and free. Null when the process has no such range left.
  void* reserve(std::uint64_t nbytes, std::uint64_t alignment, void* wanted = nullptr);
  // Gives a reserved range back to the system, with whatever is mapped in it.
  static void release(void* base, std::uint64_t nbytes);

 private:
  Mutex mutex_;
  std::uint64_t next_ ONESIDED_GUARDED_BY(mutex_) = 0;
};

}  // namespace onesided::sim
