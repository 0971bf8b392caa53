#include "onesided/device/acl/acl_device.h"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "onesided/base/align.h"
#include "onesided/device/acl/factory.h"

namespace onesided {
namespace {

constexpr std::size_t kMaxSpareEvents = 256;

}  // namespace

AclDevice::AclDevice(acl::RuntimeFunctions runtime, int device_id)
    : runtime_(runtime), device_id_(device_id), name_(fmt::format("npu:{}", device_id)) {}

std::uint64_t AclDevice::page_bytes() const { return 4 * kKiB; }

std::uint64_t AclDevice::registration_alignment() const { return kAscendPageBytes; }

Result<void*> AclDevice::allocate(std::uint64_t nbytes, std::uint64_t /*alignment*/) {
  if (nbytes == 0) return Error{Status::kParamInvalid, fmt::format("{}: 0 bytes requested", name_)};
  ONESIDED_TRY_ASSIGN(current, acl::CurrentDevice::enter(runtime_, device_id_));
  void* base = nullptr;
  const acl::Code code = runtime_.malloc(&base, nbytes, acl::kMallocHugeOnly);
  if (code != acl::kSuccess) {
    return acl::runtime_error(runtime_, fmt::format("{}: aclrtMalloc({} bytes)", name_, nbytes), code);
  }
  return base;
}

Result<void> AclDevice::free(void* base, std::uint64_t nbytes) {
  ONESIDED_TRY_ASSIGN(current, acl::CurrentDevice::enter(runtime_, device_id_));
  const acl::Code code = runtime_.free(base);
  if (code != acl::kSuccess) {
    return acl::runtime_error(runtime_, fmt::format("{}: aclrtFree({}, {} bytes)", name_, base, nbytes), code);
  }
  return {};
}

Result<MemoryInfo> AclDevice::memory_info() {
  ONESIDED_TRY_ASSIGN(current, acl::CurrentDevice::enter(runtime_, device_id_));
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  const acl::Code code = runtime_.get_mem_info(acl::kHbmMemory, &free_bytes, &total_bytes);
  if (code != acl::kSuccess) return acl::runtime_error(runtime_, fmt::format("{}: aclrtGetMemInfo", name_), code);
  return MemoryInfo{free_bytes, total_bytes};
}

Result<Event> AclDevice::record_event(Stream stream) {
  ONESIDED_TRY_ASSIGN(current, acl::CurrentDevice::enter(runtime_, device_id_));
  Event event;
  {
    MutexLock lock(mutex_);
    if (!spare_events_.empty()) {
      event.handle = spare_events_.back();
      spare_events_.pop_back();
    }
  }
  if (!event.handle) {
    const acl::Code code = runtime_.create_event(&event.handle, acl::kEventProgress);
    if (code != acl::kSuccess) return acl::runtime_error(runtime_, fmt::format("{}: aclrtCreateEvent", name_), code);
  }
  const acl::Code code = runtime_.record_event(event.handle, stream.handle);
  if (code != acl::kSuccess) {
    (void)runtime_.destroy_event(event.handle);
    return acl::runtime_error(runtime_, fmt::format("{}: aclrtRecordEvent", name_), code);
  }
  return event;
}

Result<bool> AclDevice::event_done(Event event) {
  ONESIDED_TRY_ASSIGN(current, acl::CurrentDevice::enter(runtime_, device_id_));
  int status = 0;
  const acl::Code code = runtime_.query_event_status(event.handle, &status);
  if (code != acl::kSuccess) return acl::runtime_error(runtime_, fmt::format("{}: aclrtQueryEventStatus", name_), code);
  return status == acl::kEventComplete;
}

Result<void> AclDevice::wait_event(Event event) {
  ONESIDED_TRY_ASSIGN(current, acl::CurrentDevice::enter(runtime_, device_id_));
  const acl::Code code = runtime_.synchronize_event(event.handle);
  if (code != acl::kSuccess) return acl::runtime_error(runtime_, fmt::format("{}: aclrtSynchronizeEvent", name_), code);
  return {};
}

void AclDevice::release_event(Event event) {
  {
    MutexLock lock(mutex_);
    if (spare_events_.size() < kMaxSpareEvents) {
      spare_events_.push_back(event.handle);
      return;
    }
  }
  if (const auto current = acl::CurrentDevice::enter(runtime_, device_id_)) (void)runtime_.destroy_event(event.handle);
}

Result<void> AclDevice::synchronize() {
  ONESIDED_TRY_ASSIGN(current, acl::CurrentDevice::enter(runtime_, device_id_));
  const acl::Code code = runtime_.synchronize_device();
  if (code != acl::kSuccess)
    return acl::runtime_error(runtime_, fmt::format("{}: aclrtSynchronizeDevice", name_), code);
  return {};
}

Result<void> AclDevice::copy(void* to, const void* from, std::uint64_t nbytes, int direction) {
  ONESIDED_TRY_ASSIGN(current, acl::CurrentDevice::enter(runtime_, device_id_));
  const acl::Code code = runtime_.memcpy(to, nbytes, from, nbytes, direction);
  if (code != acl::kSuccess) {
    return acl::runtime_error(runtime_, fmt::format("{}: aclrtMemcpy({} bytes)", name_, nbytes), code);
  }
  return {};
}

Result<void> AclDevice::copy_to_host(void* host, const void* device, std::uint64_t nbytes) {
  return copy(host, device, nbytes, acl::kDeviceToHost);
}

Result<void> AclDevice::copy_from_host(void* device, const void* host, std::uint64_t nbytes) {
  return copy(device, host, nbytes, acl::kHostToDevice);
}

Result<ExportedMemory> AclDevice::export_memory(const void* address) {
  if (!runtime_.sim_export) {
    return Error{Status::kUnsupported, fmt::format("{}: real device memory has no file behind it", name_)};
  }
  int borrowed = -1;
  ExportedMemory exported;
  if (runtime_.sim_export(address, &borrowed, &exported.file_offset, &exported.base, &exported.nbytes) != 0) {
    return Error{Status::kUnsupported, fmt::format("{}: {} is not memory of the simulated device", name_, address)};
  }
  Fd lent(borrowed);
  exported.file = lent.duplicate();
  (void)lent.release();
  if (!exported.file.valid())
    return Error{Status::kResourceExhausted, "no file descriptor left to export device memory"};
  return exported;
}

Result<PointerInfo> AclDevice::inspect(const void* address) {
  if (!runtime_.pointer_get_attributes) {
    return Error{Status::kUnsupported, "this Ascend runtime has no aclrtPointerGetAttributes"};
  }
  ONESIDED_TRY_ASSIGN(current, acl::CurrentDevice::enter(runtime_, device_id_));
  acl::PointerAttributes attributes;
  const acl::Code code = runtime_.pointer_get_attributes(address, &attributes);
  if (code == acl::kSuccess && attributes.location == acl::kLocationDevice) {
    return PointerInfo{MemType::kDevice, static_cast<int>(attributes.device_id)};
  }
  return Error{Status::kNotFound, fmt::format("{}: {} is not device memory", name_, address)};
}

bool acl_runtime_loaded() { return acl::loaded_runtime() != nullptr; }

Result<Device*> acl_device(int device_id) {
  // Never destroyed, because device memory may be freed while static objects are destroyed.
  static auto* mutex = new Mutex;
  static auto* devices = new std::map<int, std::unique_ptr<AclDevice>>;
  MutexLock lock(*mutex);
  if (const auto found = devices->find(device_id); found != devices->end()) return found->second.get();
  ONESIDED_TRY_ASSIGN(runtime, acl::look_up_runtime());
  std::uint32_t count = 0;
  if (const acl::Code code = runtime.get_device_count(&count); code != acl::kSuccess) {
    return acl::runtime_error(runtime, "aclrtGetDeviceCount", code);
  }
  if (device_id < 0 || static_cast<std::uint32_t>(device_id) >= count) {
    return Error{Status::kNotFound, fmt::format("no npu:{}: this process sees {} NPUs", device_id, count)};
  }
  auto& made = (*devices)[device_id];
  made = std::make_unique<AclDevice>(runtime, device_id);
  return made.get();
}

}  // namespace onesided
