// What the exported functions share: handles, entering the runtime, and words for what is refused.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "ascend_sim/acl/sim_api.h"
#include "ascend_sim/hccl/communicator.h"

namespace onesided::sim::hccl {

// Communicators by handle. A handle is never used again. Any thread.
void* add_communicator(std::shared_ptr<Communicator> group);
std::shared_ptr<Communicator> find_communicator(const void* handle);
std::shared_ptr<Communicator> remove_communicator(const void* handle);

// Leaves the words as this thread's recent error.
template <typename... Args>
Code refuse(Code code, fmt::format_string<Args...> format, Args&&... args) {
  onesided_sim_fail(code, fmt::format(format, std::forward<Args>(args)...).c_str());
  return code;
}

// Runs `body` (returning Code) as the exported function of that name: traced, with faults and the fork rule.
template <typename Body>
std::int32_t api(const char* name, Body&& body) {
  struct Call {
    Body& body;
    Code code = kRuntime;  // stays where the runtime refuses
  } call{body};
  onesided_sim_call(
      name,
      [](void* context) -> int {
        auto& self = *static_cast<Call*>(context);
        return self.code = self.body();
      },
      &call);
  return call.code;
}

// The same for functions of one communicator: `body` gets it.
template <typename Body>
std::int32_t group_api(const char* name, const void* handle, Body&& body) {
  return api(name, [&]() -> Code {
    if (!handle) return refuse(kPtr, "{}: the communicator is null", name);
    const auto group = find_communicator(handle);
    if (!group) return refuse(kPara, "{}: {} is not a communicator, or it was destroyed", name, handle);
    return body(group);
  });
}

}  // namespace onesided::sim::hccl
