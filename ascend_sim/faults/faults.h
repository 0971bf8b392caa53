// Why: faults on demand, from a seed, so that a failure can be replayed. Nothing happens unless ONESIDED_SIM_FAULTS
// asks.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "ascend_sim/acl/abi.h"

namespace onesided::sim {

// Internally synchronized.
class Faults {
 public:
  // The code that the call of `function` must return instead of working, or 0.
  AclError refusal(std::string_view) { return kAclOk; }
  // Sleeps before a piece of a stream's work when it is its turn.
  void delay_work(int) {}
  // True when this mark of an event shall never be passed.
  bool lose_completion() { return false; }
  // Bytes to shift the base of the next allocation by, 0 mostly.
  std::uint64_t misalignment() { return 0; }
};

Faults& faults();

}  // namespace onesided::sim
