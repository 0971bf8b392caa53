#include "onesided/device/acl/runtime_functions.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace onesided::acl {
namespace {

// Collects the missing names, so that one message lists all of them.
class Lookup {
 public:
  explicit Lookup(void* library) : library_(library) {}

  template <typename Function>
  void need(Function*& target, const char* name) {
    want(target, name);
    if (!target) missing_ += fmt::format("{}{}", missing_.empty() ? "" : ", ", name);
  }
  template <typename Function>
  void want(Function*& target, const char* name) {
    target = reinterpret_cast<Function*>(::dlsym(library_, name));
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

void* loaded_runtime() { return ::dlopen("libascendcl.so", RTLD_LAZY | RTLD_NOLOAD); }

Result<RuntimeFunctions> look_up_runtime() {
  void* library = loaded_runtime();
  if (!library) {
    return Error{Status::kNotFound,
                 "no Ascend runtime is loaded (libascendcl.so); import torch_npu first, or run under `onesided sim`"};
  }
  RuntimeFunctions f;
  Lookup lookup(library);
  lookup.need(f.get_device_count, "aclrtGetDeviceCount");
  lookup.need(f.get_device, "aclrtGetDevice");
  lookup.need(f.set_device, "aclrtSetDevice");
  lookup.need(f.get_current_context, "aclrtGetCurrentContext");
  lookup.need(f.set_current_context, "aclrtSetCurrentContext");
  lookup.need(f.malloc, "aclrtMalloc");
  lookup.need(f.free, "aclrtFree");
  lookup.need(f.get_mem_info, "aclrtGetMemInfo");
  lookup.need(f.memcpy, "aclrtMemcpy");
  lookup.need(f.create_event, "aclrtCreateEventExWithFlag");
  lookup.need(f.destroy_event, "aclrtDestroyEvent");
  lookup.need(f.record_event, "aclrtRecordEvent");
  lookup.need(f.query_event_status, "aclrtQueryEventStatus");
  lookup.need(f.synchronize_event, "aclrtSynchronizeEvent");
  lookup.need(f.synchronize_device, "aclrtSynchronizeDevice");
  lookup.want(f.get_recent_error, "aclGetRecentErrMsg");
  lookup.want(f.pointer_get_attributes, "aclrtPointerGetAttributes");
  lookup.want(f.sim_export, "onesided_sim_export");
  if (!lookup.missing().empty()) {
    return Error{Status::kUnsupported, fmt::format("the loaded libascendcl.so lacks {}", lookup.missing())};
  }
  return f;
}

Error runtime_error(const RuntimeFunctions& runtime, const std::string& call, Code code) {
  const bool exhausted =
      std::find(std::begin(kOutOfMemoryCodes), std::end(kOutOfMemoryCodes), code) != std::end(kOutOfMemoryCodes);
  const char* words = runtime.get_recent_error ? runtime.get_recent_error() : nullptr;
  return {exhausted ? Status::kResourceExhausted : Status::kFailed,
          fmt::format("{} failed with {}{}{}", call, code, words ? ": " : "", words ? words : "")};
}

Result<CurrentDevice> CurrentDevice::enter(const RuntimeFunctions& runtime, int device_id) {
  std::int32_t current = -1;
  const bool has_device = runtime.get_device(&current) == kSuccess;
  if (has_device && current == device_id) return CurrentDevice(runtime, nullptr);
  void* context = nullptr;
  if (has_device && runtime.get_current_context(&context) != kSuccess) context = nullptr;
  if (const Code code = runtime.set_device(device_id); code != kSuccess) {
    return runtime_error(runtime, fmt::format("aclrtSetDevice({})", device_id), code);
  }
  return CurrentDevice(runtime, context);
}

CurrentDevice::~CurrentDevice() {
  // The context was current on this thread before; if it was destroyed meanwhile, nothing useful can be done.
  if (restore_) (void)runtime_->set_current_context(restore_);
}

}  // namespace onesided::acl
