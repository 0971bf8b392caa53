// What programs ask about the hardware itself: core counts, versions, utilisation, logs, the profiler.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/runtime.h"
#include "ascend_sim/acl/trace.h"
#include "onesided/base/log.h"

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

// Core counts of the SoC that the simulator answers by default.
ONESIDED_SIM_EXPORT AclError aclGetDeviceCapability(std::uint32_t device, std::int32_t what, std::int64_t* value) {
  return api("aclGetDeviceCapability", [&] {
    if (!value) return fail(kRtParamInvalid, "aclGetDeviceCapability: null pointer for the answer");
    if (const AclError code = runtime().check_device(static_cast<int>(device))) return code;
    constexpr std::int32_t kAiCores = 0, kVectorCores = 1, kL2Bytes = 2;
    switch (what) {
      case kAiCores: *value = 20; return kAclOk;
      case kVectorCores: *value = 40; return kAclOk;
      case kL2Bytes: *value = 192 << 20; return kAclOk;
    }
    return fail(kRtFeatureNotSupport, "aclGetDeviceCapability: item {} is not simulated", what);
  });
}

// Programs log through the runtime; their lines join ours. Levels: 0 debug, 1 info, 2 warning, 3 error.
ONESIDED_SIM_EXPORT void aclAppLog(std::int32_t level, const char* function, const char* file, std::uint32_t line,
                                   const char* format, ...) {
  constexpr onesided::LogLevel kLevels[] = {onesided::LogLevel::kDebug, onesided::LogLevel::kDebug,
                                            onesided::LogLevel::kInfo, onesided::LogLevel::kInfo};
  const onesided::LogLevel ours = kLevels[level < 0 ? 0 : level > 3 ? 3 : level];
  if (!onesided::log_enabled(ours)) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  onesided::log_line(ours, fmt::format("{}:{} {}: {}", file ? file : "", line, function ? function : "", text));
}

// The profiler is not here: what is reported to it goes nowhere, as on hardware when no profiler runs.
ONESIDED_SIM_EXPORT std::int32_t MsprofRegisterCallback(std::uint32_t /*module*/, void* /*handler*/) { return 0; }
ONESIDED_SIM_EXPORT std::int32_t MsprofReportApi(std::uint32_t /*aging*/, const void* /*data*/) { return 0; }
ONESIDED_SIM_EXPORT std::int32_t MsprofReportCompactInfo(std::uint32_t /*aging*/, const void* /*data*/, std::uint32_t) {
  return 0;
}
ONESIDED_SIM_EXPORT std::int32_t MsprofReportAdditionalInfo(std::uint32_t /*aging*/, const void* /*data*/,
                                                            std::uint32_t) {
  return 0;
}
ONESIDED_SIM_EXPORT std::uint64_t MsprofSysCycleTime() { return trace_now_ns(); }
ONESIDED_SIM_EXPORT std::uint64_t MsprofGetHashId(const char* text, std::size_t length) {
  return text ? std::hash<std::string_view>{}(std::string_view(text, length)) : 0;
}
