#include "onesided/device/host/host_device.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "onesided/base/align.h"
#include "onesided/device/host/factory.h"
#include "onesided/device/host/host_mapping.h"

namespace onesided {

std::uint64_t HostDevice::page_bytes() const {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return page;
}

Result<void*> HostDevice::allocate(std::uint64_t nbytes, std::uint64_t alignment) {
  if (nbytes == 0 || !is_power_of_two(alignment)) {
    return Error{
        Status::kParamInvalid,
        fmt::format(
            "host memory: {} bytes at alignment {}: request at least 1 byte and an alignment that is a power of two",
            nbytes, alignment)};
  }
  const auto mapped_bytes = align_up(nbytes, page_bytes());
  // Checked here, because neither overcommitted anonymous memory nor a sparse memfd refuses a size that can never be
  // filled.
  if (!mapped_bytes || *mapped_bytes > host_total_bytes()) {
    return Error{Status::kResourceExhausted,
                 fmt::format("{} bytes requested, this machine has {} bytes of memory", nbytes, host_total_bytes())};
  }
  Fd file;
  if (kind_ == HostMemoryKind::kShared) {
    ONESIDED_TRY_ASSIGN(created, create_sealed_memfd(*mapped_bytes));
    file = std::move(created);
  }
  ONESIDED_TRY_ASSIGN(base, map_aligned(*mapped_bytes, std::max(alignment, page_bytes()), file));
  MutexLock lock(mutex_);
  ranges_[reinterpret_cast<std::uintptr_t>(base)] = Range{*mapped_bytes, nbytes, std::move(file)};
  return base;
}

Result<void> HostDevice::free(void* base, std::uint64_t nbytes) {
  std::uint64_t mapped_bytes = 0;
  {
    MutexLock lock(mutex_);
    const auto found = ranges_.find(reinterpret_cast<std::uintptr_t>(base));
    if (found == ranges_.end() || found->second.nbytes != nbytes) {
      return Error{Status::kNotFound,
                   fmt::format("host memory: {} with {} bytes was not allocated here", base, nbytes)};
    }
    mapped_bytes = found->second.mapped_bytes;
    // Removed before it is unmapped, because the kernel may give the address to another thread's allocation
    // immediately.
    ranges_.erase(found);
  }
  unmap(base, mapped_bytes);
  return {};
}

Result<MemoryInfo> HostDevice::memory_info() { return MemoryInfo{host_available_bytes(), host_total_bytes()}; }

Result<void> HostDevice::copy_to_host(void* host, const void* device, std::uint64_t nbytes) {
  std::memmove(host, device, nbytes);
  return {};
}

Result<void> HostDevice::copy_from_host(void* device, const void* host, std::uint64_t nbytes) {
  std::memmove(device, host, nbytes);
  return {};
}

Result<ExportedMemory> HostDevice::export_memory(const void* address) {
  if (kind_ != HostMemoryKind::kShared) {
    return Error{Status::kUnsupported, "anonymous host memory has no file; allocate it from host_pool()"};
  }
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  MutexLock lock(mutex_);
  auto found = ranges_.upper_bound(wanted);
  if (found != ranges_.begin()) --found;
  if (found == ranges_.end() || !range_within(wanted, 1, found->first, found->second.mapped_bytes)) {
    return Error{Status::kUnsupported, fmt::format("{} does not lie in exportable host memory", address)};
  }
  Fd file = found->second.file.duplicate();
  if (!file.valid()) return Error{Status::kResourceExhausted, "no file descriptor left to export host memory"};
  return ExportedMemory{std::move(file), 0, found->first, found->second.mapped_bytes};
}

Result<PointerInfo> HostDevice::inspect(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  MutexLock lock(mutex_);
  auto found = ranges_.upper_bound(wanted);
  if (found != ranges_.begin()) --found;
  if (found != ranges_.end() && range_within(wanted, 1, found->first, found->second.mapped_bytes)) return PointerInfo{};
  return Error{Status::kNotFound, fmt::format("{} was not allocated by this host device", address)};
}

// Never destroyed, because memory may be freed while static objects are destroyed.
Device& anonymous_host_device() {
  static auto* device = new HostDevice(HostMemoryKind::kAnonymous);
  return *device;
}

Device& shared_host_device() {
  static auto* device = new HostDevice(HostMemoryKind::kShared);
  return *device;
}

}  // namespace onesided
