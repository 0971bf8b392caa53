// Host memory as a Device, so that pools and engines use it in the same way as an NPU.
#pragma once

#include <map>
#include <string_view>

#include "onesided/base/mutex.h"
#include "onesided/device/device.h"

namespace onesided {

enum class HostMemoryKind { kAnonymous, kShared };

// Host memory. Internally synchronized. Streams are tags: host code has run when its call returns, so events are
// complete when recorded.
class HostDevice final : public Device {
 public:
  explicit HostDevice(HostMemoryKind kind) : kind_(kind) {}

  std::string_view name() const override { return "host"; }
  MemType mem_type() const override { return MemType::kHost; }
  std::uint64_t page_bytes() const override;
  std::uint64_t registration_alignment() const override { return 1; }
  bool host_accessible() const override { return true; }

  Result<void*> allocate(std::uint64_t nbytes, std::uint64_t alignment) override;
  Result<void> free(void* base, std::uint64_t nbytes) override;
  Result<MemoryInfo> memory_info() override;

  Result<Event> record_event(Stream) override { return Event{}; }
  Result<bool> event_done(Event) override { return true; }
  Result<void> wait_event(Event) override { return {}; }
  void release_event(Event) override {}
  Result<void> synchronize() override { return {}; }

  Result<void> copy_to_host(void* host, const void* device, std::uint64_t nbytes) override;
  Result<void> copy_from_host(void* device, const void* host, std::uint64_t nbytes) override;

  Result<ExportedMemory> export_memory(const void* address) override;
  Result<PointerInfo> inspect(const void* address) override;

 private:
  struct Range {
    std::uint64_t mapped_bytes = 0;  // nbytes rounded up to the page
    std::uint64_t nbytes = 0;        // as requested
    Fd file;                         // valid for the shared kind
  };

  const HostMemoryKind kind_;
  Mutex mutex_;
  std::map<std::uint64_t, Range> ranges_ ONESIDED_GUARDED_BY(mutex_);  // by start address
};

}  // namespace onesided
