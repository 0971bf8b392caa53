// Faults are data: a line of text with a seed describes them, and the same line gives the same faults again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onesided/base/result.h"

namespace onesided::sim {

// When something happens: at the `at`-th chance (from 1), or at one chance in `one_in`; both 0: never. A value.
struct Chance {
  std::uint64_t at = 0;
  std::uint64_t one_in = 0;

  bool never() const { return at == 0 && one_in == 0; }
  // `number`: which chance this is, from 1. Depends on nothing but the arguments.
  bool hits(std::uint64_t seed, std::string_view what, std::uint64_t number) const;
};

// A call that shall fail. A value.
struct CallFault {
  std::string function;  // empty: any that may fail on hardware while a program runs
  Chance chance;
  int code = 0;  // 0: the one that fits the function
};

// A value. Text: items joined by commas,
//   seed=7                 for every "1inN" below (default 0)
//   fail=FUNCTION@3        the third call of FUNCTION in this process fails; fail=FUNCTION@3:507899 with this code
//   fail=FUNCTION@1in100   one call of FUNCTION in 100 fails; fail=1in100 one call of any that may fail
//   delay=1in10:2000       one piece of a stream's work in 10 starts up to 2000 us late
//   lose=1in50, lose=@2    a completed event is never reported
//   misalign=1in5, =@1     an allocation starts 4 KiB beyond a multiple of its page size
//   cap=1GiB               no more than this much device memory for this process
// A bare number is a seed with a mixture of failing calls and delays.
struct FaultPlan {
  std::uint64_t seed = 0;
  std::vector<CallFault> calls;
  Chance delay;
  std::uint64_t delay_us_max = 0;
  Chance lose;
  Chance misalign;
  std::uint64_t cap_bytes = 0;  // 0: none

  bool empty() const { return calls.empty() && delay.never() && lose.never() && misalign.never() && cap_bytes == 0; }
  // PARAM_INVALID names the item that cannot be understood.
  static Result<FaultPlan> parse(std::string_view text);
};

// Uniform 64 bits from the arguments alone.
std::uint64_t fault_hash(std::uint64_t seed, std::string_view what, std::uint64_t number);

}  // namespace onesided::sim
