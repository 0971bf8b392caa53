// Every exported function enters through one door, so that tracing, seeded faults and the fork rule hold for all
// of them and none can forget.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>

#include "ascend_sim/acl/abi.h"
#include "ascend_sim/acl/errors.h"

namespace onesided::sim {

// One call of an exported function, from entry to return. Confined to its thread.
class ApiCall {
 public:
  explicit ApiCall(const char* name);
  ~ApiCall();
  ApiCall(const ApiCall&) = delete;
  ApiCall& operator=(const ApiCall&) = delete;

  // Not 0: the call must return this instead of doing its work (configuration unusable, forked child, seeded fault).
  AclError refusal() const { return refusal_; }
  AclError finish(AclError code) {
    code_ = code;
    return code;
  }
  // Adds words to the trace line of the innermost call of this thread. Formats nothing when there is no trace.
  template <typename... Args>
  static void note(fmt::format_string<Args...> format, Args&&... args) {
    if (ApiCall* call = current(); call && call->traced_)
      call->notes_ += fmt::format(format, std::forward<Args>(args)...);
  }

 private:
  static ApiCall* current();

  const char* name_;
  ApiCall* outer_;
  AclError refusal_ = kAclOk;
  AclError code_ = kAclOk;
  bool traced_ = false;
  std::uint64_t start_ns_ = 0;
  std::string notes_;
};

// Runs `body` (returning AclError) as the exported function `name`.
template <typename Body>
AclError api(const char* name, Body&& body) {
  ApiCall call(name);
  if (call.refusal() != kAclOk) return call.finish(call.refusal());
  return call.finish(std::forward<Body>(body)());
}

}  // namespace onesided::sim
