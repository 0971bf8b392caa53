#include "ascend_sim/acl/virtual_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "ascend_sim/acl/errors.h"
#include "ascend_sim/acl/fork.h"
#include "ascend_sim/acl/runtime.h"
#include "onesided/base/align.h"

namespace onesided::sim {

VirtualMemory& virtual_memory() {
  static auto* instance = new VirtualMemory;
  return *instance;
}

bool VirtualMemory::reserved_locked(std::uint64_t base, std::uint64_t nbytes) const {
  auto at = ranges_.upper_bound(base);
  if (at == ranges_.begin()) return false;
  --at;
  return range_within(base, nbytes, at->first, at->second.nbytes);
}

AclError VirtualMemory::reserve(void** base, std::uint64_t nbytes, std::uint64_t alignment, void* wanted) {
  if (!base) return fail(kRtParamInvalid, "aclrtReserveMemAddress: null pointer for the answer");
  *base = nullptr;
  if (alignment != 0 && !is_power_of_two(alignment)) {
    return fail(kRtParamInvalid, "aclrtReserveMemAddress: alignment {} is not a power of two", alignment);
  }
  const auto length = align_up(nbytes, kAscendPageBytes);
  if (nbytes == 0 || !length) return fail(kRtParamInvalid, "aclrtReserveMemAddress: {} bytes asked", nbytes);
  void* got = runtime().addresses.reserve(*length, alignment ? alignment : kAscendPageBytes, wanted);
  if (!got && wanted) got = runtime().addresses.reserve(*length, alignment ? alignment : kAscendPageBytes);
  if (!got) return fail(kRtMemoryAllocation, "aclrtReserveMemAddress: no address range of {} bytes", nbytes);
  mark_used();
  MutexLock lock(mutex_);
  ranges_[reinterpret_cast<std::uint64_t>(got)] = Range{*length};
  *base = got;
  return kAclOk;
}

AclError VirtualMemory::release(void* base) {
  MutexLock lock(mutex_);
  const auto at = ranges_.find(reinterpret_cast<std::uint64_t>(base));
  if (at == ranges_.end())
    return fail(kRtParamInvalid, "aclrtReleaseMemAddress: {} is not the start of a reserved range", base);
  if (runtime().memory.occupied(at->first, at->second.nbytes)) {
    return fail(kRtParamInvalid, "aclrtReleaseMemAddress: memory is still mapped in the range at {}", base);
  }
  AddressSpace::release(base, at->second.nbytes);
  ranges_.erase(at);
  return kAclOk;
}

AclError VirtualMemory::map(void* base, std::uint64_t nbytes, std::uint64_t offset, const PhysicalMemory& piece) {
  const auto at = reinterpret_cast<std::uint64_t>(base);
  if (nbytes == 0 || !range_within(offset, nbytes, 0, piece.backing->nbytes())) {
    return fail(kRtParamInvalid, "aclrtMapMem: {} bytes from offset {} of a piece of {} bytes", nbytes, offset,
                piece.backing->nbytes());
  }
  if (!is_aligned(at | nbytes | offset, piece.page_bytes)) {
    return fail(kRtParamInvalid, "aclrtMapMem: address {}, size {} and offset {} are not multiples of the page size {}",
                base, nbytes, offset, piece.page_bytes);
  }
  MutexLock lock(mutex_);
  if (!reserved_locked(at, nbytes)) {
    return fail(kRtParamInvalid, "aclrtMapMem: {} bytes at {} do not lie in one reserved range", nbytes, base);
  }
  if (runtime().memory.occupied(at, nbytes)) {
    return fail(kRtParamInvalid, "aclrtMapMem: memory is mapped already in {} bytes at {}", nbytes, base);
  }
  void* mapped = ::mmap(base, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, piece.backing->fd(),
                        static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return fail(kRtDriverInternal, "aclrtMapMem: {}", std::strerror(errno));
  ::madvise(mapped, nbytes, MADV_DONTFORK);
  auto mapping = std::make_shared<Mapping>();
  mapping->kind = MemoryKind::kMapped;
  mapping->base = at;
  mapping->nbytes = nbytes;
  mapping->device = piece.device;
  mapping->backing = piece.backing;
  mapping->file_offset = offset;
  mapping->page_bytes = piece.page_bytes;
  runtime().memory.add(std::move(mapping));
  return kAclOk;
}

AclError VirtualMemory::unmap(void* base) {
  const MappingPtr mapping = runtime().memory.remove(base, MemoryKind::kMapped);
  if (!mapping) return fail(kRtParamInvalid, "aclrtUnmapMem: {} is not the start of mapped memory", base);
  // The range may be mapped anew at once, so what is queued on the old memory must have run.
  if (mapping->on_device()) (void)runtime().device(mapping->device).synchronize();
  MutexLock lock(mutex_);
  ::mmap(base, mapping->nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return kAclOk;
}

}  // namespace onesided::sim
