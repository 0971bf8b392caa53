// Memory across processes, as the public ACL API names it.
#include <cstring>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/runtime.h"
#include "ascend_sim/acl/sharing.h"

namespace onesided::sim {
namespace {

constexpr std::uint64_t kAnyProcess = 1;  // "disable pid validation", the same bit for keys and handles
// Kinds of shareable handles: a number, or a fabric handle of 128 bytes that holds the same number here.
constexpr std::int32_t kNumberHandle = 1;
constexpr std::int32_t kFabricHandle = 2;
constexpr std::size_t kFabricBytes = 128;

bool known_type(std::int32_t type) { return type == kNumberHandle || type == kFabricHandle; }

}  // namespace
}  // namespace onesided::sim

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT AclError aclrtIpcMemGetExportKey(void* address, std::size_t nbytes, char* key, std::size_t capacity,
                                                     std::uint64_t flags) {
  return api("aclrtIpcMemGetExportKey", [&] {
    ApiCall::note("address={} nbytes={}", address, nbytes);
    return sharing().export_range(address, nbytes, key, capacity, flags & kAnyProcess);
  });
}

ONESIDED_SIM_EXPORT AclError aclrtIpcMemSetImportPid(const char* key, std::int32_t* pids, std::size_t count) {
  return api("aclrtIpcMemSetImportPid",
             [&] { return sharing().allow("aclrtIpcMemSetImportPid", id_of(key), pids, count); });
}

// Memory of every device can be reached from every other, so the peer-access flag changes nothing.
ONESIDED_SIM_EXPORT AclError aclrtIpcMemImportByKey(void** address, const char* key, std::uint64_t /*flags*/) {
  return api("aclrtIpcMemImportByKey", [&] { return sharing().import_range(key, address); });
}

ONESIDED_SIM_EXPORT AclError aclrtIpcMemClose(const char* key) {
  return api("aclrtIpcMemClose", [&] { return sharing().close(key); });
}

ONESIDED_SIM_EXPORT AclError aclrtMemExportToShareableHandle(void* handle, std::int32_t /*type*/, std::uint64_t flags,
                                                             std::uint64_t* shareable) {
  return api("aclrtMemExportToShareableHandle",
             [&] { return sharing().export_piece(handle, flags & kAnyProcess, shareable); });
}

ONESIDED_SIM_EXPORT AclError aclrtMemSetPidToShareableHandle(std::uint64_t shareable, std::int32_t* pids,
                                                             std::size_t count) {
  return api("aclrtMemSetPidToShareableHandle",
             [&] { return sharing().allow("aclrtMemSetPidToShareableHandle", shareable, pids, count); });
}

ONESIDED_SIM_EXPORT AclError aclrtMemImportFromShareableHandle(std::uint64_t shareable, std::int32_t device,
                                                               void** handle) {
  return api("aclrtMemImportFromShareableHandle", [&] { return sharing().import_piece(shareable, device, handle); });
}

ONESIDED_SIM_EXPORT AclError aclrtMemExportToShareableHandleV2(void* handle, std::uint64_t flags, std::int32_t type,
                                                               void* shareable) {
  return api("aclrtMemExportToShareableHandleV2", [&] {
    if (!shareable || !known_type(type))
      return fail(kRtParamInvalid, "aclrtMemExportToShareableHandleV2: type {}", type);
    std::uint64_t id = 0;
    if (const AclError code = sharing().export_piece(handle, flags & kAnyProcess, &id)) return code;
    if (type == kFabricHandle) std::memset(shareable, 0, kFabricBytes);
    std::memcpy(shareable, &id, sizeof(id));
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtMemImportFromShareableHandleV2(void* shareable, std::int32_t type,
                                                                 std::uint64_t /*flags*/, void** handle) {
  return api("aclrtMemImportFromShareableHandleV2", [&] {
    if (!shareable || !known_type(type))
      return fail(kRtParamInvalid, "aclrtMemImportFromShareableHandleV2: type {}", type);
    const auto context = current_context("aclrtMemImportFromShareableHandleV2");
    if (!context) return kRtContextNull;
    std::uint64_t id = 0;
    std::memcpy(&id, shareable, sizeof(id));
    return sharing().import_piece(id, context->device.logical(), handle);
  });
}
