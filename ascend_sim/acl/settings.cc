// Options that tune the hardware or its operator compiler. Nothing here is compiled, and CPU kernels are exact and
// deterministic, so an option changes no result; what was set is kept and answered, as the API promises.
#include <cstring>
#include <map>
#include <string>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/runtime.h"
#include "onesided/base/mutex.h"

namespace onesided::sim {
namespace {

// Values by option, of the process. Internally synchronized.
template <typename Value>
class Settings {
 public:
  void set(std::int32_t option, Value value) {
    MutexLock lock(mutex_);
    values_[option] = std::move(value);
  }
  Value get(std::int32_t option) {
    MutexLock lock(mutex_);
    return values_[option];
  }

 private:
  Mutex mutex_;
  std::map<std::int32_t, Value> values_ ONESIDED_GUARDED_BY(mutex_);
};

template <typename Value, int Which>
Settings<Value>& settings() {
  static auto* instance = new Settings<Value>;
  return *instance;
}

constexpr int kSystem = 0, kCompile = 1, kSaturation = 2;

AclError set_system(const char* function, std::int32_t option, std::int64_t value) {
  return api(function, [&] {
    ApiCall::note("option={} value={}", option, value);
    settings<std::int64_t, kSystem>().set(option, value);
    return kAclOk;
  });
}

AclError get_system(const char* function, std::int32_t option, std::int64_t* value) {
  return api(function, [&] {
    if (!value) return fail(kRtParamInvalid, "{}: null pointer for the answer", function);
    *value = settings<std::int64_t, kSystem>().get(option);
    return kAclOk;
  });
}

// No operator here can run for long enough to be timed out by the hardware.
AclError accept_timeout(const char* function, std::uint64_t timeout) {
  return api(function, [&] {
    ApiCall::note("timeout={}", timeout);
    return kAclOk;
  });
}

}  // namespace
}  // namespace onesided::sim

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT AclError aclrtSetSysParamOpt(std::int32_t option, std::int64_t value) {
  return set_system("aclrtSetSysParamOpt", option, value);
}
ONESIDED_SIM_EXPORT AclError aclrtCtxSetSysParamOpt(std::int32_t option, std::int64_t value) {
  return set_system("aclrtCtxSetSysParamOpt", option, value);
}
ONESIDED_SIM_EXPORT AclError aclrtGetSysParamOpt(std::int32_t option, std::int64_t* value) {
  return get_system("aclrtGetSysParamOpt", option, value);
}
ONESIDED_SIM_EXPORT AclError aclrtCtxGetSysParamOpt(std::int32_t option, std::int64_t* value) {
  return get_system("aclrtCtxGetSysParamOpt", option, value);
}

ONESIDED_SIM_EXPORT AclError aclSetCompileopt(std::int32_t option, const char* value) {
  return api("aclSetCompileopt", [&] {
    if (!value) return fail(kAclInvalidParam, "aclSetCompileopt: null value");
    ApiCall::note("option={} value={}", option, value);
    settings<std::string, kCompile>().set(option, value);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT std::size_t aclGetCompileoptSize(std::int32_t option) {
  return settings<std::string, kCompile>().get(option).size() + 1;
}

ONESIDED_SIM_EXPORT AclError aclGetCompileopt(std::int32_t option, char* value, std::size_t capacity) {
  return api("aclGetCompileopt", [&] {
    const std::string text = settings<std::string, kCompile>().get(option);
    if (!value || capacity <= text.size())
      return fail(kAclInvalidParam, "aclGetCompileopt: a buffer of {} bytes needed", text.size() + 1);
    std::memcpy(value, text.c_str(), text.size() + 1);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtSetOpExecuteTimeOut(std::uint32_t seconds) {
  return accept_timeout("aclrtSetOpExecuteTimeOut", seconds);
}
ONESIDED_SIM_EXPORT AclError aclrtSetOpExecuteTimeOutV2(std::uint64_t us, std::uint64_t* actual) {
  if (actual) *actual = us;
  return accept_timeout("aclrtSetOpExecuteTimeOutV2", us);
}
ONESIDED_SIM_EXPORT AclError aclrtSetOpWaitTimeout(std::uint32_t seconds) {
  return accept_timeout("aclrtSetOpWaitTimeout", seconds);
}

ONESIDED_SIM_EXPORT AclError aclrtSetDeviceSatMode(std::int32_t mode) {
  return api("aclrtSetDeviceSatMode", [&] {
    // CPU kernels produce infinities and NaNs; clamping to the largest number is not simulated.
    constexpr std::int32_t kInfNan = 1;
    if (mode != kInfNan) return fail(kRtFeatureNotSupport, "aclrtSetDeviceSatMode: only the INF/NAN mode is simulated");
    settings<std::int64_t, kSaturation>().set(0, mode);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtGetDeviceSatMode(std::int32_t* mode) {
  return api("aclrtGetDeviceSatMode", [&] {
    if (!mode) return fail(kRtParamInvalid, "aclrtGetDeviceSatMode: null pointer for the answer");
    *mode = 1;
    return kAclOk;
  });
}
