// Plain device and host memory: allocation by policy, sizes, what a pointer is.
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/fork.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/ledger.h"
#include "ascend_sim/acl/runtime.h"
#include "ascend_sim/acl/sharing.h"
#include "ascend_sim/faults/faults.h"
#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

constexpr std::uint64_t kNormalPage = 4 * kKiB;
// HUGE_FIRST takes huge pages only for what fills a good part of one.
constexpr std::uint64_t kHugeFirstAbove = 1 * kMiB;

// Page size of a policy for a size; 0 for a policy that does not exist.
std::uint64_t page_bytes_of(std::uint32_t policy, std::uint64_t nbytes) {
  switch (policy & kMallocPageMask) {
    case kMallocHugeFirst:
    case kMallocHugeFirstP2p: return nbytes > kHugeFirstAbove ? kAscendPageBytes : kNormalPage;
    case kMallocHugeOnly:
    case kMallocHugeOnlyP2p: return kAscendPageBytes;
    case kMallocNormalOnly:
    case kMallocNormalOnlyP2p: return kNormalPage;
    case kMallocHuge1gOnly:
    case kMallocHuge1gOnlyP2p: return kGiB;
  }
  return 0;
}

// The memory behind an allocation: aclrtMalloc documents 32 bytes more than requested, readable for kernels that read
// past a tensor's end (none in pages of 1 GiB); aclrtMallocAlign32 documents none. An uncharged page provides the 32
// bytes.
enum class Tail { kNone, kReadable };

// A mapping of `backing` at a fresh address. Memory in normal pages never starts at a multiple of 2 MiB, so that a
// program which relies on that by luck hears of it.
std::shared_ptr<Mapping> map_fresh(std::shared_ptr<Backing> backing, MemoryKind kind, int device,
                                   std::uint64_t page_bytes, std::uint64_t shift, Tail tail = Tail::kNone) {
  if (page_bytes == kNormalPage && device >= 0) shift += kNormalPage;
  const std::uint64_t nbytes = backing->nbytes();
  const std::uint64_t tail_bytes = tail == Tail::kReadable ? kNormalPage : 0;
  const std::uint64_t owned_bytes = nbytes + (shift ? *align_up(shift, kNormalPage) : 0) + tail_bytes;
  void* reserved = runtime().addresses.reserve(owned_bytes, page_bytes);
  if (!reserved) return nullptr;
  const std::uint64_t mapped_at = reinterpret_cast<std::uint64_t>(reserved) + align_down(shift, kNormalPage);
  void* mapped = ::mmap(reinterpret_cast<void*>(mapped_at), nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        backing->fd(), 0);
  auto mapping = std::make_shared<Mapping>();
  mapping->kind = kind;
  mapping->base = mapped_at;
  mapping->nbytes = nbytes;
  mapping->device = device;
  mapping->backing = std::move(backing);
  mapping->page_bytes = page_bytes;
  mapping->owned_base = reinterpret_cast<std::uint64_t>(reserved);
  mapping->owned_bytes = owned_bytes;
  if (mapped == MAP_FAILED) return nullptr;
  if (tail_bytes && ::mprotect(static_cast<char*>(mapped) + nbytes, tail_bytes, PROT_READ) != 0) return nullptr;
  if (device >= 0) ::madvise(mapped, nbytes, MADV_DONTFORK);  // a child's writes would be the parent's
  return mapping;
}

AclError malloc_device(const char* function, void** address, std::uint64_t nbytes, std::uint32_t policy, Tail tail) {
  if (!address) return fail(kRtParamInvalid, "{}: null pointer for the answer", function);
  *address = nullptr;
  if (nbytes == 0) return fail(kRtParamInvalid, "{}: 0 bytes asked", function);
  const std::uint64_t page = page_bytes_of(policy, nbytes);
  if (page == 0) return fail(kRtParamInvalid, "{}: policy {:#x} does not exist", function, policy);
  const auto context = current_context(function);
  if (!context) return kRtContextNull;
  const auto length = align_up(nbytes, page);
  DeviceState& device = context->device;
  if (!length || *length > device.capacity_bytes()) {
    return fail(kRtMemoryAllocation, "{}: out of memory: {} bytes asked of device {} with {}", function, nbytes,
                device.logical(), device.capacity_bytes());
  }
  if (const auto charged = device.charge(*length); !charged.ok()) {
    return fail(kRtMemoryAllocation, "{}: out of memory: {}", function, charged.error().text());
  }
  auto file = make_memory_file(*length);
  if (!file.ok()) {
    device.refund(*length);
    return fail(kRtMemoryAllocation, "{}: {}", function, file.error().text());
  }
  auto backing = std::make_shared<Backing>(std::move(*file), *length, device.physical());
  auto mapping = map_fresh(std::move(backing), MemoryKind::kDevice, device.logical(), page, faults().misalignment(),
                           page == kGiB ? Tail::kNone : tail);
  if (!mapping)
    return fail(kRtMemoryAllocation, "{}: no address range of {} bytes: {}", function, *length, std::strerror(errno));
  mark_used();
  device.count_malloc();
  *address = reinterpret_cast<void*>(mapping->base);
  runtime().memory.add(std::move(mapping));
  ApiCall::note("device={} nbytes={} policy={} address={}", device.logical(), nbytes, policy, *address);
  return kAclOk;
}

AclError malloc_host(const char* function, void** address, std::uint64_t nbytes) {
  if (!address) return fail(kRtParamInvalid, "{}: null pointer for the answer", function);
  *address = nullptr;
  const auto length = align_up(nbytes, kNormalPage);
  if (nbytes == 0 || !length) return fail(kRtParamInvalid, "{}: {} bytes asked", function, nbytes);
  auto file = make_memory_file(*length);
  if (!file.ok()) return fail(kRtMemoryAllocation, "{}: {}", function, file.error().text());
  auto backing = std::make_shared<Backing>(std::move(*file), *length, -1);
  auto mapping = map_fresh(std::move(backing), MemoryKind::kHost, -1, kNormalPage, 0);
  if (!mapping) return fail(kRtMemoryAllocation, "{}: no address range of {} bytes", function, *length);
  mark_used();
  *address = reinterpret_cast<void*>(mapping->base);
  runtime().memory.add(std::move(mapping));
  ApiCall::note("nbytes={} address={}", nbytes, *address);
  return kAclOk;
}

AclError register_host(const char* function, void* address, std::uint64_t nbytes) {
  const auto base = reinterpret_cast<std::uint64_t>(address);
  if (!address || nbytes == 0 || !checked_add(base, nbytes)) {
    return fail(kRtParamInvalid, "{}: {} bytes at {}", function, nbytes, address);
  }
  if (runtime().memory.occupied(base, nbytes)) {
    return fail(kRtParamInvalid, "{}: {} bytes at {} are known to the runtime already", function, nbytes, address);
  }
  auto mapping = std::make_shared<Mapping>();
  mapping->kind = MemoryKind::kHostRegistered;
  mapping->base = base;
  mapping->nbytes = nbytes;
  mapping->page_bytes = kNormalPage;
  runtime().memory.add(std::move(mapping));
  return kAclOk;
}

}  // namespace
}  // namespace onesided::sim

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT AclError aclrtMalloc(void** address, std::size_t nbytes, std::uint32_t policy) {
  return api("aclrtMalloc", [&] { return malloc_device("aclrtMalloc", address, nbytes, policy, Tail::kReadable); });
}

ONESIDED_SIM_EXPORT AclError aclrtMallocAlign32(void** address, std::size_t nbytes, std::uint32_t policy) {
  return api("aclrtMallocAlign32",
             [&] { return malloc_device("aclrtMallocAlign32", address, nbytes, policy, Tail::kNone); });
}

ONESIDED_SIM_EXPORT AclError aclrtFree(void* address) {
  return api("aclrtFree", [&] {
    ApiCall::note("address={}", address);
    const MappingPtr mapping = runtime().memory.remove(address, MemoryKind::kDevice);
    if (!mapping) return fail(kRtParamInvalid, "aclrtFree: {} is not the start of memory from aclrtMalloc", address);
    sharing().forget_exports_of(mapping->base);
    runtime().device(mapping->device).count_free();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtMallocHost(void** address, std::size_t nbytes) {
  return api("aclrtMallocHost", [&] { return malloc_host("aclrtMallocHost", address, nbytes); });
}

ONESIDED_SIM_EXPORT AclError aclrtMallocHostWithCfg(void** address, std::uint64_t nbytes, void* /*config*/) {
  return api("aclrtMallocHostWithCfg", [&] { return malloc_host("aclrtMallocHostWithCfg", address, nbytes); });
}

ONESIDED_SIM_EXPORT AclError aclrtFreeHost(void* address) {
  return api("aclrtFreeHost", [&] {
    if (runtime().memory.remove(address, MemoryKind::kHost)) return kAclOk;
    return fail(kRtParamInvalid, "aclrtFreeHost: {} is not the start of memory from aclrtMallocHost", address);
  });
}

// The device reaches registered host memory under the address the host uses.
ONESIDED_SIM_EXPORT AclError aclrtHostRegister(void* address, std::uint64_t nbytes, std::int32_t /*type*/,
                                               void** device) {
  return api("aclrtHostRegister", [&] {
    const AclError code = register_host("aclrtHostRegister", address, nbytes);
    if (code == kAclOk && device) *device = address;
    return code;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtHostRegisterV2(void* address, std::uint64_t nbytes, std::uint32_t /*flag*/) {
  return api("aclrtHostRegisterV2", [&] { return register_host("aclrtHostRegisterV2", address, nbytes); });
}

ONESIDED_SIM_EXPORT AclError aclrtHostGetDevicePointer(void* host, void** device, std::uint32_t /*flag*/) {
  return api("aclrtHostGetDevicePointer", [&] {
    const MappingPtr mapping = runtime().memory.find(host);
    if (!device || !mapping || mapping->on_device()) {
      return fail(kRtParamInvalid, "aclrtHostGetDevicePointer: {} is not registered host memory", host);
    }
    *device = host;
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtHostUnregister(void* address) {
  return api("aclrtHostUnregister", [&] {
    if (runtime().memory.remove(address, MemoryKind::kHostRegistered)) return kAclOk;
    return fail(kRtParamInvalid, "aclrtHostUnregister: {} is not the start of registered memory", address);
  });
}

ONESIDED_SIM_EXPORT AclError aclrtGetMemInfo(std::int32_t attribute, std::size_t* free_bytes,
                                             std::size_t* total_bytes) {
  return api("aclrtGetMemInfo", [&] {
    if (!free_bytes || !total_bytes) return fail(kRtParamInvalid, "aclrtGetMemInfo: null pointer for the answer");
    // Without a current device it is device 0's: torch_npu asks before it sets one.
    const auto context = runtime().contexts.find(current_context_handle());
    if (!context && runtime().device_count() == 0) return fail(kRtContextNull, "aclrtGetMemInfo: no device is visible");
    DeviceState& device = context ? context->device : runtime().device(0);
    const bool ddr = attribute == 0 || attribute == 2 || attribute == 3;  // these devices have none
    *total_bytes = ddr ? 0 : device.capacity_bytes();
    *free_bytes = 0;
    if (ddr) return kAclOk;
    const auto ledger = Ledger::machine();
    if (!ledger.ok()) return fail(kRtDriverInternal, "aclrtGetMemInfo: {}", ledger.error().text());
    *free_bytes = *total_bytes - std::min<std::uint64_t>(*total_bytes, (*ledger)->used(device.physical()));
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtPointerGetAttributes(const void* address, PtrAttributes* attributes) {
  return api("aclrtPointerGetAttributes", [&] {
    if (!attributes) return fail(kRtParamInvalid, "aclrtPointerGetAttributes: null pointer for the answer");
    *attributes = PtrAttributes{{0, MemLocationType::kUnregistered}, 0, {}};
    const MappingPtr mapping = runtime().memory.find(address);
    if (!mapping) return kAclOk;
    attributes->location.type = mapping->on_device() ? MemLocationType::kDevice : MemLocationType::kHost;
    attributes->location.id = mapping->on_device() ? static_cast<std::uint32_t>(mapping->device) : 0;
    attributes->page_size = static_cast<std::uint32_t>(mapping->page_bytes);
    return kAclOk;
  });
}
