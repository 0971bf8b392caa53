#include "ascend_sim/faults/faults.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "ascend_sim/acl/config.h"
#include "ascend_sim/acl/errors.h"
#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

// What may fail on hardware while a program runs. Sorted.
constexpr std::array<std::string_view, 14> kMayFail = {
    "aclrtIpcMemGetExportKey",
    "aclrtIpcMemImportByKey",
    "aclrtMalloc",
    "aclrtMallocAlign32",
    "aclrtMallocHost",
    "aclrtMallocHostWithCfg",
    "aclrtMallocPhysical",
    "aclrtMapMem",
    "aclrtMemcpy",
    "aclrtMemcpyAsync",
    "aclrtMemcpyBatch",
    "aclrtMemcpyBatchAsync",
    "aclrtSynchronizeStream",
    "aclrtSynchronizeStreamWithTimeout",
};

AclError fitting_code(std::string_view function) {
  return function.find("Malloc") != std::string_view::npos ? kRtMemoryAllocation : kRtDriverInternal;
}

}  // namespace

AclError Faults::refusal(std::string_view function) {
  if (!active_ || plan_.calls.empty()) return kAclOk;
  const bool may_fail = std::binary_search(kMayFail.begin(), kMayFail.end(), function);
  std::uint64_t count = 0;
  {
    MutexLock lock(mutex_);
    count = ++calls_.try_emplace(std::string(function), 0).first->second;
  }
  for (const CallFault& fault : plan_.calls) {
    if (fault.function.empty() ? !may_fail : fault.function != function) continue;
    if (!fault.chance.hits(plan_.seed, function, count)) continue;
    return fail(fault.code ? fault.code : fitting_code(function),
                "{}: call {} fails as ONESIDED_SIM_FAULTS asks (seed {})", function, count, plan_.seed);
  }
  return kAclOk;
}

void Faults::delay_work() {
  if (!active_ || plan_.delay.never()) return;
  const std::uint64_t count = works_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!plan_.delay.hits(plan_.seed, "delay", count)) return;
  const std::uint64_t us = 1 + fault_hash(plan_.seed, "how long", count) % plan_.delay_us_max;
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

bool Faults::lose_completion() {
  if (!active_ || plan_.lose.never()) return false;
  return plan_.lose.hits(plan_.seed, "lose", completions_.fetch_add(1, std::memory_order_relaxed) + 1);
}

std::uint64_t Faults::misalignment() {
  if (!active_ || plan_.misalign.never()) return 0;
  const bool hit =
      plan_.misalign.hits(plan_.seed, "misalign", allocations_.fetch_add(1, std::memory_order_relaxed) + 1);
  return hit ? 4 * kKiB : 0;
}

Faults& faults() {
  static auto* instance = new Faults(Config::active().ok() ? Config::active()->faults : FaultPlan{});
  return *instance;
}

}  // namespace onesided::sim
