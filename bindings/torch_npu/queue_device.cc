#include "queue_device.h"

#include <fmt/format.h>

#include <memory>

namespace onesided::torch_npu {
namespace {

// torch_npu reports failure by throwing; the core does not use exceptions.
template <typename Body>
auto caught(const char* what, Body body) -> Result<decltype(body())> {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return {};
    } else {
      return body();
    }
  } catch (const std::exception& error) {
    return Error{Status::kFailed, fmt::format("{}: {}", what, error.what())};
  }
}

}  // namespace

bool runtime_alive() { return c10_npu::NpuSysCtrl::GetInstance().GetInitFlag(); }

Stream QueueDevice::name_stream(const c10_npu::NPUStream& stream) {
  const Stream named{stream.stream(false)};
  MutexLock lock(mutex_);
  streams_.insert_or_assign(named, stream.unwrap());
  return named;
}

Result<void*> QueueDevice::allocate(std::uint64_t nbytes, std::uint64_t alignment) {
  ONESIDED_TRY(may_allocate_(nbytes));
  return native_.allocate(nbytes, alignment);
}

Result<void> QueueDevice::free(void* base, std::uint64_t nbytes) {
  // The pool has synchronized. After the runtime's shutdown the driver frees the memory with the process.
  if (!runtime_alive()) return {};
  return native_.free(base, nbytes);
}

Result<Event> QueueDevice::record_event(Stream stream) {
  return caught("event on a stream", [&]() -> Event {
    c10::Stream wanted(c10::Stream::DEFAULT, c10::Device(c10::DeviceType::PrivateUse1, index_));
    {
      MutexLock lock(mutex_);
      const auto found = streams_.find(stream);
      ONESIDED_CHECK(found != streams_.end(), "stream {} was never named", stream.handle);
      wanted = found->second;
    }
    auto event = std::make_unique<c10_npu::NPUEvent>(ACL_EVENT_CAPTURE_STREAM_PROGRESS);
    event->record(c10_npu::NPUStream(wanted));
    return Event{event.release()};
  });
}

Result<bool> QueueDevice::event_done(Event event) {
  return caught("event query", [&]() -> bool { return static_cast<c10_npu::NPUEvent*>(event.handle)->query(); });
}

Result<void> QueueDevice::wait_event(Event event) {
  return caught("event wait", [&] { static_cast<c10_npu::NPUEvent*>(event.handle)->synchronize(); });
}

void QueueDevice::release_event(Event event) { delete static_cast<c10_npu::NPUEvent*>(event.handle); }

Result<void> QueueDevice::synchronize() {
  if (!runtime_alive()) return {};
  return caught("device synchronization", [&] {
    const c10_npu::NPUGuard guard(index_);
    c10_npu::npuSynchronizeDevice(true);
  });
}

Result<void> QueueDevice::copy_to_host(void* host, const void* device, std::uint64_t nbytes) {
  ONESIDED_TRY(synchronize());
  return native_.copy_to_host(host, device, nbytes);
}

Result<void> QueueDevice::copy_from_host(void* device, const void* host, std::uint64_t nbytes) {
  ONESIDED_TRY(synchronize());
  return native_.copy_from_host(device, host, nbytes);
}

}  // namespace onesided::torch_npu
