// Devices, contexts and what the machine says of itself, as the public ACL API names them.
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/config.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/ledger.h"
#include "ascend_sim/acl/runtime.h"
#include "ascend_sim/acl/torch_router.h"

namespace onesided::sim {
namespace {

std::atomic<bool> initialized{false};

AclError check_pointer(const void* pointer, const char* function) {
  return pointer ? kAclOk : fail(kRtParamInvalid, "{}: null pointer for the answer", function);
}

AclError use_device(std::int32_t device) {
  if (const AclError code = runtime().check_device(device)) return code;
  set_current_context_handle(runtime().primary_context(device));
  return kAclOk;
}

AclError reset_device(std::int32_t device) {
  if (const AclError code = runtime().check_device(device)) return code;
  runtime().device(device).reset();
  return kAclOk;
}

}  // namespace

bool acl_initialized() { return initialized.load(std::memory_order_relaxed); }

}  // namespace onesided::sim

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT AclError aclInit(const char* /*config_path*/) {
  return api("aclInit", [] {
    route_torch_operators();
    return initialized.exchange(true) ? fail(kAclRepeatInitialize, "aclInit was called before") : kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclFinalize() {
  return api("aclFinalize", [] {
    // A completion that never comes must not keep the process from ending.
    constexpr std::int64_t kPatienceMs = 10'000;
    for (int device = 0; device < runtime().device_count(); ++device) runtime().device(device).drain(kPatienceMs);
    return initialized.exchange(false) ? kAclOk : fail(kAclInvalidParam, "aclFinalize without aclInit");
  });
}

ONESIDED_SIM_EXPORT AclError aclrtGetDeviceCount(std::uint32_t* count) {
  return api("aclrtGetDeviceCount", [&] {
    if (const AclError code = check_pointer(count, "aclrtGetDeviceCount")) return code;
    *count = static_cast<std::uint32_t>(runtime().device_count());
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtSetDevice(std::int32_t device) {
  return api("aclrtSetDevice", [&] {
    ApiCall::note("device={}", device);
    return use_device(device);
  });
}

ONESIDED_SIM_EXPORT AclError aclrtGetDevice(std::int32_t* device) {
  return api("aclrtGetDevice", [&] {
    if (const AclError code = check_pointer(device, "aclrtGetDevice")) return code;
    *device = 0;
    const auto context = current_context("aclrtGetDevice");
    if (!context) return kRtContextNull;
    *device = context->device.logical();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtResetDevice(std::int32_t device) {
  return api("aclrtResetDevice", [&] { return reset_device(device); });
}

ONESIDED_SIM_EXPORT AclError aclrtResetDeviceForce(std::int32_t device) {
  return api("aclrtResetDeviceForce", [&] { return reset_device(device); });
}

ONESIDED_SIM_EXPORT AclError aclrtCreateContext(void** context, std::int32_t device) {
  return api("aclrtCreateContext", [&] {
    if (const AclError code = check_pointer(context, "aclrtCreateContext")) return code;
    if (const AclError code = runtime().check_device(device)) return code;
    DeviceState& state = runtime().device(device);
    *context = runtime().contexts.add(std::make_shared<Context>(Context{state, state.new_stream(0)}));
    set_current_context_handle(*context);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtDestroyContext(void* context) {
  return api("aclrtDestroyContext", [&] {
    const auto found = runtime().contexts.find(context);
    if (!found) return fail(kRtParamInvalid, "aclrtDestroyContext: {} is not a context", context);
    if (found->primary) return fail(kRtParamInvalid, "aclrtDestroyContext: a device's own context cannot be destroyed");
    runtime().contexts.remove(context);
    found->device.forget_stream(found->default_stream);
    if (current_context_handle() == context) set_current_context_handle(nullptr);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtSetCurrentContext(void* context) {
  return api("aclrtSetCurrentContext", [&] {
    if (!runtime().contexts.find(context)) {
      return fail(kRtContextNull, "aclrtSetCurrentContext: {} is not a context", context);
    }
    set_current_context_handle(context);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtGetCurrentContext(void** context) {
  return api("aclrtGetCurrentContext", [&] {
    if (const AclError code = check_pointer(context, "aclrtGetCurrentContext")) return code;
    *context = nullptr;
    if (!current_context("aclrtGetCurrentContext")) return kRtContextNull;
    *context = current_context_handle();
    return kAclOk;
  });
}

// All of a process's primary contexts exist from the start; "active" is what a program means by it: in use.
ONESIDED_SIM_EXPORT AclError aclrtGetPrimaryCtxState(std::int32_t device, std::uint32_t* flags, std::int32_t* active) {
  return api("aclrtGetPrimaryCtxState", [&] {
    if (const AclError code = runtime().check_device(device)) return code;
    if (flags) *flags = 0;
    if (active)
      *active =
          current_context_handle() == runtime().primary_context(device) || runtime().device(device).stats().mallocs > 0;
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT const char* aclrtGetSocName() {
  const auto& config = Config::active();
  return config.ok() ? config->soc_name.c_str() : nullptr;
}

ONESIDED_SIM_EXPORT AclError aclrtGetPhyDevIdByLogicDevId(std::int32_t logical, std::int32_t* physical) {
  return api("aclrtGetPhyDevIdByLogicDevId", [&] {
    if (const AclError code = check_pointer(physical, "aclrtGetPhyDevIdByLogicDevId")) return code;
    if (const AclError code = runtime().check_device(logical)) return code;
    *physical = runtime().device(logical).physical();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtGetLogicDevIdByUserDevId(std::int32_t user, std::int32_t* logical) {
  return api("aclrtGetLogicDevIdByUserDevId", [&] {
    if (const AclError code = check_pointer(logical, "aclrtGetLogicDevIdByUserDevId")) return code;
    if (const AclError code = runtime().check_device(user)) return code;
    *logical = user;
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtDeviceGetUuid(std::int32_t device, void* uuid) {
  return api("aclrtDeviceGetUuid", [&] {
    if (const AclError code = check_pointer(uuid, "aclrtDeviceGetUuid")) return code;
    if (const AclError code = runtime().check_device(device)) return code;
    std::memcpy(uuid, "onesided-sim-\0\0", 16);
    static_cast<char*>(uuid)[15] = static_cast<char>(runtime().device(device).physical());
    return kAclOk;
  });
}

// The process id outside of containers; the simulator knows no other than this one.
ONESIDED_SIM_EXPORT AclError aclrtDeviceGetBareTgid(std::int32_t* pid) {
  return api("aclrtDeviceGetBareTgid", [&] {
    if (const AclError code = check_pointer(pid, "aclrtDeviceGetBareTgid")) return code;
    *pid = ::getpid();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtDeviceCanAccessPeer(std::int32_t* can_access, std::int32_t device,
                                                      std::int32_t peer) {
  return api("aclrtDeviceCanAccessPeer", [&] {
    if (const AclError code = check_pointer(can_access, "aclrtDeviceCanAccessPeer")) return code;
    if (const AclError code = runtime().check_device(device)) return code;
    if (const AclError code = runtime().check_device(peer)) return code;
    *can_access = device != peer;
    return kAclOk;
  });
}

// Every simulated device reaches every other without being told to.
ONESIDED_SIM_EXPORT AclError aclrtDeviceEnablePeerAccess(std::int32_t peer, std::uint32_t /*flags*/) {
  return api("aclrtDeviceEnablePeerAccess", [&] { return runtime().check_device(peer); });
}
