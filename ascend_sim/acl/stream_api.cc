// Streams, events and host callbacks, as the public ACL API names them.
#include <limits>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/runtime.h"

namespace onesided::sim {
namespace {

// Timeouts of the API are milliseconds; a negative one means no limit.
Deadline deadline_of(std::int32_t timeout_ms) {
  return timeout_ms < 0 ? Deadline::never() : Deadline::after_ms(static_cast<std::int64_t>(timeout_ms));
}

AclError create_stream(const char* function, void** stream, std::uint32_t flags) {
  if (!stream) return fail(kRtParamInvalid, "{}: null pointer for the answer", function);
  const auto context = current_context(function);
  if (!context) return kRtContextNull;
  *stream = runtime().streams.add(context->device.new_stream(flags));
  ApiCall::note("device={} stream={}", context->device.logical(), *stream);
  return kAclOk;
}

AclError destroy_stream(const char* function, void* handle, bool force) {
  const auto stream = runtime().streams.remove(handle);
  if (!stream) return fail(kRtParamInvalid, "{}: {} is not a stream, or it was destroyed", function, handle);
  if (force) stream->abort();
  (void)stream->synchronize();  // what sticks to the device is told by calls that ask for results
  stream->device().forget_stream(stream);
  return kAclOk;
}

AclError synchronize_stream(const char* function, void* handle, std::int32_t timeout_ms) {
  const auto stream = stream_of(handle, function);
  return stream ? stream->synchronize(deadline_of(timeout_ms)) : kRtStreamContext;
}

AclError synchronize_device(const char* function, std::int32_t timeout_ms) {
  const auto context = current_context(function);
  return context ? context->device.synchronize(deadline_of(timeout_ms)) : kRtContextNull;
}

AclError create_event(const char* function, void** event, std::uint32_t flags) {
  if (!event) return fail(kRtParamInvalid, "{}: null pointer for the answer", function);
  *event = runtime().events.add(std::make_shared<Event>(flags));
  return kAclOk;
}

std::shared_ptr<Event> event_of(const char* function, void* handle) {
  auto event = runtime().events.find(handle);
  if (!event) fail(kRtParamInvalid, "{}: {} is not an event, or it was destroyed", function, handle);
  return event;
}

AclError call_host(const char* function, void* stream, void (*callback)(void*), void* argument) {
  if (!callback) return fail(kRtParamInvalid, "{}: null callback", function);
  const auto queue = stream_of(stream, function);
  if (!queue) return kRtStreamContext;
  return queue->enqueue([callback, argument] {
    callback(argument);
    return kAclOk;
  });
}

}  // namespace
}  // namespace onesided::sim

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT AclError aclrtCreateStream(void** stream) {
  return api("aclrtCreateStream", [&] { return create_stream("aclrtCreateStream", stream, 0); });
}

ONESIDED_SIM_EXPORT AclError aclrtCreateStreamWithConfig(void** stream, std::uint32_t /*priority*/,
                                                         std::uint32_t flags) {
  return api("aclrtCreateStreamWithConfig",
             [&] { return create_stream("aclrtCreateStreamWithConfig", stream, flags); });
}

ONESIDED_SIM_EXPORT AclError aclrtDestroyStream(void* stream) {
  return api("aclrtDestroyStream", [&] { return destroy_stream("aclrtDestroyStream", stream, false); });
}

ONESIDED_SIM_EXPORT AclError aclrtDestroyStreamForce(void* stream) {
  return api("aclrtDestroyStreamForce", [&] { return destroy_stream("aclrtDestroyStreamForce", stream, true); });
}

ONESIDED_SIM_EXPORT AclError aclrtStreamAbort(void* stream) {
  return api("aclrtStreamAbort", [&] {
    const auto found = stream_of(stream, "aclrtStreamAbort");
    if (!found) return kRtStreamContext;
    found->abort();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtDeviceTaskAbort(std::int32_t device, std::uint32_t /*timeout_ms*/) {
  return api("aclrtDeviceTaskAbort", [&] {
    if (const AclError code = runtime().check_device(device)) return code;
    runtime().device(device).abort_all();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtSynchronizeStream(void* stream) {
  return api("aclrtSynchronizeStream", [&] { return synchronize_stream("aclrtSynchronizeStream", stream, -1); });
}

ONESIDED_SIM_EXPORT AclError aclrtSynchronizeStreamWithTimeout(void* stream, std::int32_t timeout_ms) {
  return api("aclrtSynchronizeStreamWithTimeout",
             [&] { return synchronize_stream("aclrtSynchronizeStreamWithTimeout", stream, timeout_ms); });
}

ONESIDED_SIM_EXPORT AclError aclrtSynchronizeDevice() {
  return api("aclrtSynchronizeDevice", [&] { return synchronize_device("aclrtSynchronizeDevice", -1); });
}

ONESIDED_SIM_EXPORT AclError aclrtSynchronizeDeviceWithTimeout(std::int32_t timeout_ms) {
  return api("aclrtSynchronizeDeviceWithTimeout",
             [&] { return synchronize_device("aclrtSynchronizeDeviceWithTimeout", timeout_ms); });
}

ONESIDED_SIM_EXPORT AclError aclrtStreamQuery(void* stream, std::int32_t* status) {
  return api("aclrtStreamQuery", [&] {
    const auto found = stream_of(stream, "aclrtStreamQuery");
    if (!found) return kRtStreamContext;
    if (!status) return fail(kRtParamInvalid, "aclrtStreamQuery: null pointer for the answer");
    *status = found->idle() ? 0 : 1;
    return found->device().sticky_error();
  });
}

ONESIDED_SIM_EXPORT AclError aclrtStreamGetId(void* stream, std::int32_t* id) {
  return api("aclrtStreamGetId", [&] {
    const auto found = stream_of(stream, "aclrtStreamGetId");
    if (!found) return kRtStreamContext;
    if (!id) return fail(kRtParamInvalid, "aclrtStreamGetId: null pointer for the answer");
    *id = found->id();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtCreateEvent(void** event) {
  return api("aclrtCreateEvent", [&] { return create_event("aclrtCreateEvent", event, 0); });
}

ONESIDED_SIM_EXPORT AclError aclrtCreateEventWithFlag(void** event, std::uint32_t flags) {
  return api("aclrtCreateEventWithFlag", [&] { return create_event("aclrtCreateEventWithFlag", event, flags); });
}

ONESIDED_SIM_EXPORT AclError aclrtCreateEventExWithFlag(void** event, std::uint32_t flags) {
  return api("aclrtCreateEventExWithFlag", [&] { return create_event("aclrtCreateEventExWithFlag", event, flags); });
}

ONESIDED_SIM_EXPORT AclError aclrtDestroyEvent(void* event) {
  return api("aclrtDestroyEvent", [&] {
    if (runtime().events.remove(event)) return kAclOk;
    return fail(kRtParamInvalid, "aclrtDestroyEvent: {} is not an event, or it was destroyed", event);
  });
}

ONESIDED_SIM_EXPORT AclError aclrtRecordEvent(void* event, void* stream) {
  return api("aclrtRecordEvent", [&] {
    const auto found = event_of("aclrtRecordEvent", event);
    if (!found) return kRtParamInvalid;
    const auto queue = stream_of(stream, "aclrtRecordEvent");
    return queue ? found->record(*queue) : kRtStreamContext;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtResetEvent(void* event, void* /*stream*/) {
  return api("aclrtResetEvent", [&] {
    const auto found = event_of("aclrtResetEvent", event);
    if (!found) return kRtParamInvalid;
    found->reset();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtStreamWaitEvent(void* stream, void* event) {
  return api("aclrtStreamWaitEvent", [&] {
    const auto found = event_of("aclrtStreamWaitEvent", event);
    if (!found) return kRtParamInvalid;
    const auto queue = stream_of(stream, "aclrtStreamWaitEvent");
    return queue ? found->block(*queue) : kRtStreamContext;
  });
}

// Recorded status: 1 complete, 0 not ready.
ONESIDED_SIM_EXPORT AclError aclrtQueryEventStatus(void* event, std::int32_t* status) {
  return api("aclrtQueryEventStatus", [&] {
    const auto found = event_of("aclrtQueryEventStatus", event);
    if (!found || !status) return kRtParamInvalid;
    *status = found->complete() ? 1 : 0;
    return kAclOk;
  });
}

// Wait status: 0 complete, 1 not ready.
ONESIDED_SIM_EXPORT AclError aclrtQueryEventWaitStatus(void* event, std::int32_t* status) {
  return api("aclrtQueryEventWaitStatus", [&] {
    const auto found = event_of("aclrtQueryEventWaitStatus", event);
    if (!found || !status) return kRtParamInvalid;
    *status = found->complete() ? 0 : 1;
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtSynchronizeEvent(void* event) {
  return api("aclrtSynchronizeEvent", [&] {
    const auto found = event_of("aclrtSynchronizeEvent", event);
    if (!found) return kRtParamInvalid;
    found->wait(onesided::Deadline::never());
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtEventElapsedTime(float* elapsed_ms, void* start, void* end) {
  return api("aclrtEventElapsedTime", [&] {
    const auto from = event_of("aclrtEventElapsedTime", start);
    const auto to = event_of("aclrtEventElapsedTime", end);
    if (!from || !to || !elapsed_ms) return kRtParamInvalid;
    const std::uint64_t begin_ns = from->timestamp_ns();
    const std::uint64_t end_ns = to->timestamp_ns();
    if (begin_ns == 0 || end_ns == 0) {
      return fail(kRtParamInvalid, "aclrtEventElapsedTime: an event is not recorded, or not yet complete");
    }
    *elapsed_ms = static_cast<float>((static_cast<double>(end_ns) - static_cast<double>(begin_ns)) / 1e6);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtEventGetTimestamp(void* event, std::uint64_t* timestamp_us) {
  return api("aclrtEventGetTimestamp", [&] {
    const auto found = event_of("aclrtEventGetTimestamp", event);
    if (!found || !timestamp_us) return kRtParamInvalid;
    *timestamp_us = found->timestamp_ns() / 1000;
    return *timestamp_us ? kAclOk : fail(kRtParamInvalid, "aclrtEventGetTimestamp: the event is not complete");
  });
}

ONESIDED_SIM_EXPORT AclError aclrtLaunchHostFunc(void* stream, void (*callback)(void*), void* argument) {
  return api("aclrtLaunchHostFunc", [&] { return call_host("aclrtLaunchHostFunc", stream, callback, argument); });
}

// Callbacks run on the stream's worker, so that no thread has to subscribe and process reports.
ONESIDED_SIM_EXPORT AclError aclrtLaunchCallback(void (*callback)(void*), void* argument, std::int32_t /*block*/,
                                                 void* stream) {
  return api("aclrtLaunchCallback", [&] { return call_host("aclrtLaunchCallback", stream, callback, argument); });
}

ONESIDED_SIM_EXPORT AclError aclrtSubscribeReport(std::uint64_t /*thread*/, void* stream) {
  return api("aclrtSubscribeReport",
             [&] { return stream_of(stream, "aclrtSubscribeReport") ? kAclOk : kRtStreamContext; });
}

ONESIDED_SIM_EXPORT AclError aclrtUnSubscribeReport(std::uint64_t /*thread*/, void* stream) {
  return api("aclrtUnSubscribeReport",
             [&] { return stream_of(stream, "aclrtUnSubscribeReport") ? kAclOk : kRtStreamContext; });
}

// Nothing is ever being captured: graphs are not simulated, and the functions that would begin one are not there.
ONESIDED_SIM_EXPORT AclError aclmdlRICaptureGetInfo(void* stream, std::int32_t* status, void** model) {
  return api("aclmdlRICaptureGetInfo", [&] {
    if (!status || !model) return fail(kRtParamInvalid, "aclmdlRICaptureGetInfo: null pointer for the answer");
    if (!stream_of(stream, "aclmdlRICaptureGetInfo")) return kRtStreamContext;
    constexpr std::int32_t kNotCapturing = 0;
    *status = kNotCapturing;
    *model = nullptr;
    return kAclOk;
  });
}
