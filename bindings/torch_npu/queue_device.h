// The device of an aligned pool under torch_npu. torch_npu puts work into a task queue of its own before it reaches the
// runtime. A raw event or a raw free would overtake queued work, so events are NPUEvents here, and the queue is drained
// before memory is freed.
#pragma once

#include <functional>
#include <map>

#include "onesided/base/mutex.h"
#include "onesided/device/device.h"
#include "torch_npu_headers.h"

namespace onesided::torch_npu {

// One NPU under torch_npu. Internally synchronized. `native` (a device of node's making) must outlive it.
class QueueDevice final : public Device {
 public:
  // `may_allocate(nbytes)` returns an error if a limit of torch_npu (memory fraction) forbids the allocation.
  QueueDevice(Device& native, c10::DeviceIndex index, std::function<Result<void>(std::uint64_t)> may_allocate)
      : native_(native), index_(index), may_allocate_(std::move(may_allocate)) {}

  // Makes a stream known to the pool; events can be recorded only on such streams.
  Stream name_stream(const c10_npu::NPUStream& stream);

  std::string_view name() const override { return native_.name(); }
  MemType mem_type() const override { return native_.mem_type(); }
  std::uint64_t page_bytes() const override { return native_.page_bytes(); }
  std::uint64_t registration_alignment() const override { return native_.registration_alignment(); }
  bool host_accessible() const override { return native_.host_accessible(); }

  Result<void*> allocate(std::uint64_t nbytes, std::uint64_t alignment) override;
  Result<void> free(void* base, std::uint64_t nbytes) override;
  Result<MemoryInfo> memory_info() override { return native_.memory_info(); }

  Result<Event> record_event(Stream stream) override;
  Result<bool> event_done(Event event) override;
  Result<void> wait_event(Event event) override;
  void release_event(Event event) override;
  // Drains torch_npu's queue, then waits for the device. torch_npu releases the GIL during the wait.
  Result<void> synchronize() override;

  Result<void> copy_to_host(void* host, const void* device, std::uint64_t nbytes) override;
  Result<void> copy_from_host(void* device, const void* host, std::uint64_t nbytes) override;
  Result<ExportedMemory> export_memory(const void* address) override { return native_.export_memory(address); }
  Result<PointerInfo> inspect(const void* address) override { return native_.inspect(address); }

  Result<void> may_allocate(std::uint64_t nbytes) { return may_allocate_(nbytes); }

 private:
  Device& native_;
  const c10::DeviceIndex index_;
  const std::function<Result<void>(std::uint64_t)> may_allocate_;
  Mutex mutex_;
  std::map<Stream, c10::Stream> streams_ ONESIDED_GUARDED_BY(mutex_);
};

// False once torch_npu has shut the runtime down: the process is ending, and memory is not freed any more.
bool runtime_alive();

}  // namespace onesided::torch_npu
