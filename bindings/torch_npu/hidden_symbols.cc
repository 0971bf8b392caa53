// Definitions of seven functions that inline code in the wheel's headers calls and the wheel's library does not export.
// The vtable of NPUAllocator needs them, although the decorator overrides or never reaches that code (it forwards to
// the native allocator, which has the real ones). They are hidden, so that they never replace the wheel's own.
#include <string>

#include "torch_npu_headers.h"

#pragma GCC visibility push(hidden)

std::string formatErrorCode(SubModule, ErrCode) { return ""; }

namespace c10_npu {
std::string getDeviceErrorMessage(int) { return ""; }
bool isCannOOM(const std::string&) { return false; }

namespace acl {
aclError AclrtPeekAtLastError(aclrtLastErrLevel) { return ACL_ERROR_NONE; }
}  // namespace acl

namespace option {
bool OptionsManager::IsOomSnapshotEnable() { return false; }
bool OptionsManager::IsCompactErrorOutput() { return false; }
void oom_observer(int64_t, int64_t, int64_t, int64_t) {}
}  // namespace option
}  // namespace c10_npu

#pragma GCC visibility pop
