// Virtual memory, as the public ACL API names it.
#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/ledger.h"
#include "ascend_sim/acl/runtime.h"
#include "ascend_sim/acl/virtual_memory.h"
#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

// Memory attributes with 4 KiB pages; all others of the API are huge pages.
bool normal_pages(std::int32_t attribute) {
  constexpr std::int32_t kDdrNormal = 3, kHbmNormal = 5, kDdrP2pNormal = 8, kHbmP2pNormal = 11;
  return attribute == kDdrNormal || attribute == kHbmNormal || attribute == kDdrP2pNormal || attribute == kHbmP2pNormal;
}

std::uint64_t granularity_of(const PhysicalMemProp& prop) {
  return normal_pages(prop.mem_attr) ? 4 * kKiB : kAscendPageBytes;
}

AclError reserve(const char* /*function*/, void** base, std::size_t nbytes, std::size_t alignment, void* wanted) {
  const AclError code = virtual_memory().reserve(base, nbytes, alignment, wanted);
  ApiCall::note("nbytes={} base={}", nbytes, base ? *base : nullptr);
  return code;
}

AclError malloc_physical(void** handle, std::uint64_t nbytes, const PhysicalMemProp& prop) {
  const std::uint64_t granularity = granularity_of(prop);
  if (nbytes == 0 || !is_aligned(nbytes, granularity)) {
    return fail(kRtParamInvalid, "aclrtMallocPhysical: {} bytes are not a multiple of the granularity {}", nbytes,
                granularity);
  }
  DeviceState* device = nullptr;
  if (prop.location.type == MemLocationType::kDevice) {
    if (const AclError code = runtime().check_device(static_cast<int>(prop.location.id))) return code;
    device = &runtime().device(static_cast<int>(prop.location.id));
    if (const auto charged = device->charge(nbytes); !charged.ok()) {
      return fail(kRtMemoryAllocation, "aclrtMallocPhysical: out of memory: {}", charged.error().text());
    }
  } else if (prop.location.type != MemLocationType::kHost) {
    return fail(kRtParamInvalid, "aclrtMallocPhysical: location type {} does not exist",
                static_cast<int>(prop.location.type));
  }
  auto file = make_memory_file(nbytes);
  if (!file.ok()) {
    if (device) device->refund(nbytes);
    return fail(kRtMemoryAllocation, "aclrtMallocPhysical: {}", file.error().text());
  }
  auto piece = std::make_shared<PhysicalMemory>();
  piece->backing = std::make_shared<Backing>(std::move(*file), nbytes, device ? device->physical() : -1);
  piece->device = device ? device->logical() : -1;
  piece->page_bytes = granularity;
  if (device) device->count_malloc();
  *handle = virtual_memory().pieces.add(std::move(piece));
  return kAclOk;
}

}  // namespace
}  // namespace onesided::sim

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT AclError aclrtReserveMemAddress(void** base, std::size_t nbytes, std::size_t alignment,
                                                    void* wanted, std::uint64_t /*flags*/) {
  return api("aclrtReserveMemAddress",
             [&] { return reserve("aclrtReserveMemAddress", base, nbytes, alignment, wanted); });
}

ONESIDED_SIM_EXPORT AclError aclrtReserveMemAddressNoUCMemory(void** base, std::size_t nbytes, std::size_t alignment,
                                                              void* wanted, std::uint64_t /*flags*/) {
  return api("aclrtReserveMemAddressNoUCMemory",
             [&] { return reserve("aclrtReserveMemAddressNoUCMemory", base, nbytes, alignment, wanted); });
}

ONESIDED_SIM_EXPORT AclError aclrtReleaseMemAddress(void* base) {
  return api("aclrtReleaseMemAddress", [&] { return virtual_memory().release(base); });
}

ONESIDED_SIM_EXPORT AclError aclrtMallocPhysical(void** handle, std::size_t nbytes, const PhysicalMemProp* prop,
                                                 std::uint64_t /*flags*/) {
  return api("aclrtMallocPhysical", [&] {
    if (!handle || !prop) return fail(kRtParamInvalid, "aclrtMallocPhysical: null pointer");
    *handle = nullptr;
    ApiCall::note("nbytes={} device={}", nbytes, prop->location.id);
    return malloc_physical(handle, nbytes, *prop);
  });
}

ONESIDED_SIM_EXPORT AclError aclrtFreePhysical(void* handle) {
  return api("aclrtFreePhysical", [&] {
    const auto piece = virtual_memory().pieces.remove(handle);
    if (!piece) return fail(kRtParamInvalid, "aclrtFreePhysical: {} is not physical memory", handle);
    if (piece->export_id) {
      if (const auto ledger = Ledger::machine(); ledger.ok()) (*ledger)->withdraw(piece->export_id);
    }
    if (piece->device >= 0 && piece->backing->physical_device() >= 0) runtime().device(piece->device).count_free();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtMapMem(void* base, std::size_t nbytes, std::size_t offset, void* handle,
                                         std::uint64_t /*flags*/) {
  return api("aclrtMapMem", [&] {
    ApiCall::note("base={} nbytes={}", base, nbytes);
    const auto piece = virtual_memory().pieces.find(handle);
    if (!piece) return fail(kRtParamInvalid, "aclrtMapMem: {} is not physical memory", handle);
    return virtual_memory().map(base, nbytes, offset, *piece);
  });
}

ONESIDED_SIM_EXPORT AclError aclrtUnmapMem(void* base) {
  return api("aclrtUnmapMem", [&] {
    ApiCall::note("base={}", base);
    return virtual_memory().unmap(base);
  });
}

ONESIDED_SIM_EXPORT AclError aclrtMemGetAllocationGranularity(PhysicalMemProp* prop, std::int32_t /*option*/,
                                                              std::size_t* granularity) {
  return api("aclrtMemGetAllocationGranularity", [&] {
    if (!prop || !granularity) return fail(kRtParamInvalid, "aclrtMemGetAllocationGranularity: null pointer");
    *granularity = granularity_of(*prop);
    return kAclOk;
  });
}

// Mapped memory can be read and written by every device and the host from the start; less is not offered.
ONESIDED_SIM_EXPORT AclError aclrtMemSetAccess(void* base, std::size_t nbytes, MemAccessDesc* access,
                                               std::size_t count) {
  return api("aclrtMemSetAccess", [&] {
    constexpr std::int32_t kReadWrite = 3;
    if (!access || count == 0) return fail(kRtParamInvalid, "aclrtMemSetAccess: no access given");
    for (std::size_t i = 0; i < count; ++i) {
      if (access[i].flags != kReadWrite)
        return fail(kRtFeatureNotSupport, "aclrtMemSetAccess: only read-write access is simulated");
    }
    if (runtime().memory.cover(base, nbytes).empty()) {
      return fail(kRtParamInvalid, "aclrtMemSetAccess: {} bytes at {} are not mapped", nbytes, base);
    }
    return kAclOk;
  });
}
