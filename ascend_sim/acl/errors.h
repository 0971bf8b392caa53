// A failing call leaves words behind (aclGetRecentErrMsg), and a function that cannot do what it says says so
// once.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "ascend_sim/acl/abi.h"

namespace onesided::sim {

// Remembers `text` for aclGetRecentErrMsg of this thread and returns `code`. Thread-safe.
AclError fail_with(AclError code, std::string text);

template <typename... Args>
AclError fail(AclError code, fmt::format_string<Args...> format, Args&&... args) {
  return fail_with(code, fmt::format(format, std::forward<Args>(args)...));
}

// 207000 for a function the simulator does not have; its name is logged at the first call. Thread-safe.
AclError unsupported(const char* function);

// The text of this thread's last failure, or the process's last one that no thread has read; empties both. Never null
// when there is something to say; valid until the thread's next call.
const char* take_recent_error();

// What the last failure of this thread was; nothing taken. Empty when there was none.
std::string peek_recent_error();

}  // namespace onesided::sim
