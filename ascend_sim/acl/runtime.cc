#include "ascend_sim/acl/runtime.h"

#include "ascend_sim/acl/config.h"
#include "ascend_sim/acl/errors.h"

namespace onesided::sim {
namespace {

thread_local void* current_handle = nullptr;

}  // namespace

Runtime::Runtime() {
  const Config& config = *Config::active();
  for (std::size_t logical = 0; logical < config.visible.size(); ++logical) {
    devices_.push_back(
        std::make_unique<DeviceState>(static_cast<int>(logical), config.visible[logical], config.hbm_bytes));
    DeviceState& device = *devices_.back();
    auto context = std::make_shared<Context>(Context{device, device.new_stream(0), true});
    primary_contexts_.push_back(contexts.add(std::move(context)));
  }
}

Runtime& runtime() {
  static auto* instance = new Runtime;
  return *instance;
}

AclError Runtime::check_device(int logical) const {
  if (logical >= 0 && logical < device_count()) return kAclOk;
  return fail(kRtInvalidDevice,
              "device {} does not exist: this process sees {} (ONESIDED_SIM_DEVICES, "
              "ASCEND_RT_VISIBLE_DEVICES)",
              logical, device_count());
}

void Runtime::refund(int physical, std::uint64_t nbytes) {
  for (const auto& device : devices_) {
    if (device->physical() == physical) device->refund(nbytes);
  }
}

void* current_context_handle() { return current_handle; }
void set_current_context_handle(void* handle) { current_handle = handle; }

std::shared_ptr<Context> current_context(const char* function) {
  if (!current_handle && !acl_initialized() && runtime().device_count() > 0) {
    current_handle = runtime().primary_context(0);
  }
  auto context = current_handle ? runtime().contexts.find(current_handle) : nullptr;
  if (!context) fail(kRtContextNull, "{}: this thread has no current device; call aclrtSetDevice first", function);
  return context;
}

std::shared_ptr<Stream> stream_of(void* handle, const char* function) {
  if (!handle) {
    const auto context = current_context(function);
    return context ? context->default_stream : nullptr;
  }
  auto stream = runtime().streams.find(handle);
  if (!stream) fail(kRtParamInvalid, "{}: {} is not a stream, or it was destroyed", function, handle);
  return stream;
}

}  // namespace onesided::sim
