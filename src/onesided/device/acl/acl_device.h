// An NPU as a Device. The same code runs on real hardware and on the simulated runtime; the only difference is what the
// simulator offers in addition (a file behind the memory, host access).
#pragma once

#include <string>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/device/acl/runtime_functions.h"
#include "onesided/device/device.h"

namespace onesided {

// An Ascend NPU. Internally synchronized.
class AclDevice final : public Device {
 public:
  AclDevice(acl::RuntimeFunctions runtime, int device_id);

  std::string_view name() const override { return name_; }
  MemType mem_type() const override { return MemType::kDevice; }
  std::uint64_t page_bytes() const override;
  std::uint64_t registration_alignment() const override;
  bool host_accessible() const override { return runtime_.sim_export != nullptr; }

  // Allocates huge pages, aligned to 2 MiB; the runtime has no parameter for a larger alignment. It keeps 32 readable
  // bytes after the range itself (aclrtMalloc's documentation), for kernels that read past the end.
  Result<void*> allocate(std::uint64_t nbytes, std::uint64_t alignment) override;
  Result<void> free(void* base, std::uint64_t nbytes) override;
  Result<MemoryInfo> memory_info() override;

  Result<Event> record_event(Stream stream) override;
  Result<bool> event_done(Event event) override;
  Result<void> wait_event(Event event) override;
  void release_event(Event event) override;
  Result<void> synchronize() override;

  Result<void> copy_to_host(void* host, const void* device, std::uint64_t nbytes) override;
  Result<void> copy_from_host(void* device, const void* host, std::uint64_t nbytes) override;

  Result<ExportedMemory> export_memory(const void* address) override;
  Result<PointerInfo> inspect(const void* address) override;

 private:
  Result<void> copy(void* to, const void* from, std::uint64_t nbytes, int direction);

  const acl::RuntimeFunctions runtime_;
  const int device_id_;
  const std::string name_;
  Mutex mutex_;
  std::vector<void*> spare_events_ ONESIDED_GUARDED_BY(mutex_);  // creating one costs a driver call
};

}  // namespace onesided
