// Faults on demand, from a seed, so that a failure can be replayed. Nothing happens unless ONESIDED_SIM_FAULTS
// asks.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "ascend_sim/acl/abi.h"
#include "ascend_sim/faults/fault_plan.h"
#include "onesided/base/mutex.h"

namespace onesided::sim {

// Counts the chances of a plan and says when they hit. Internally synchronized. Which chance hits depends only on the
// plan and on how many of its kind came before, not on time.
class Faults {
 public:
  explicit Faults(FaultPlan plan) : plan_(std::move(plan)), active_(!plan_.empty()) {}

  // The code that this call of `function` must return instead of working, or 0.
  AclError refusal(std::string_view function);
  // Sleeps before a piece of a stream's work when it is its turn.
  void delay_work();
  // True when this completed event shall never be reported.
  bool lose_completion();
  // Bytes to shift the base of the next allocation by; 0 mostly.
  std::uint64_t misalignment();
  // The most device memory that this process may use; 0: no limit of its own.
  std::uint64_t cap_bytes() const { return plan_.cap_bytes; }

 private:
  const FaultPlan plan_;
  const bool active_;
  std::atomic<std::uint64_t> works_{0};
  std::atomic<std::uint64_t> completions_{0};
  std::atomic<std::uint64_t> allocations_{0};

  Mutex mutex_;
  std::map<std::string, std::uint64_t, std::less<>> calls_ ONESIDED_GUARDED_BY(mutex_);  // by function
};

// Those of ONESIDED_SIM_FAULTS. Lives for ever.
Faults& faults();

}  // namespace onesided::sim
