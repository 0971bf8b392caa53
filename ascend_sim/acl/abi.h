// The shapes and values of the public ACL C API that callers rely on, written down from its public facts. No
// vendor header is included anywhere in the simulator; sizes are asserted because callers were compiled against the
// vendor's.
#pragma once

#include <cstddef>
#include <cstdint>

#define ONESIDED_SIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace onesided::sim {

// Return value of nearly every function. Values of the public API.
using AclError = std::int32_t;
inline constexpr AclError kAclOk = 0;
inline constexpr AclError kAclInvalidParam = 100000;
inline constexpr AclError kAclRepeatInitialize = 100002;
inline constexpr AclError kAclOpNotFound = 100024;
inline constexpr AclError kAclBadAlloc = 200000;
inline constexpr AclError kAclGeFailure = 500002;
inline constexpr AclError kRtParamInvalid = 107000;
inline constexpr AclError kRtInvalidDevice = 107001;
inline constexpr AclError kRtContextNull = 107002;
inline constexpr AclError kRtStreamContext = 107003;
inline constexpr AclError kRtStreamSyncTimeout = 107020;
inline constexpr AclError kRtFeatureNotSupport = 207000;
inline constexpr AclError kRtMemoryAllocation = 207001;
inline constexpr AclError kRtResourceAlloc = 207008;
inline constexpr AclError kRtInternal = 507000;
inline constexpr AclError kRtAicoreException = 507015;
inline constexpr AclError kRtDriverInternal = 507899;

enum class MemcpyKind : std::int32_t {
  kHostToHost = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
  kDefault = 4,
  kHostToBufToDevice = 5,
  kInnerDeviceToDevice = 6,
  kInterDeviceToDevice = 7,
};

enum class MemLocationType : std::int32_t { kHost = 0, kDevice = 1, kUnregistered = 2 };

struct MemLocation {
  std::uint32_t id;
  MemLocationType type;
};
static_assert(sizeof(MemLocation) == 8);

struct PtrAttributes {
  MemLocation location;
  std::uint32_t page_size;
  std::uint32_t reserved[4];
};
static_assert(sizeof(PtrAttributes) == 28);

struct PhysicalMemProp {
  std::int32_t handle_type;
  std::int32_t allocation_type;
  std::int32_t mem_attr;
  MemLocation location;
  std::uint64_t reserve;
};
static_assert(sizeof(PhysicalMemProp) == 32);

struct MemcpyBatchAttr {
  MemLocation dst;
  MemLocation src;
  std::uint8_t reserved[16];
};
static_assert(sizeof(MemcpyBatchAttr) == 32);

struct MemAccessDesc {
  std::int32_t flags;
  MemLocation location;
  std::uint8_t reserved[12];
};
static_assert(sizeof(MemAccessDesc) == 24);

// Policies of aclrtMalloc: the page size is in the low bits, the P2P variants follow the plain ones.
inline constexpr std::uint32_t kMallocHugeFirst = 0;
inline constexpr std::uint32_t kMallocHugeOnly = 1;
inline constexpr std::uint32_t kMallocNormalOnly = 2;
inline constexpr std::uint32_t kMallocHugeFirstP2p = 3;
inline constexpr std::uint32_t kMallocHugeOnlyP2p = 4;
inline constexpr std::uint32_t kMallocNormalOnlyP2p = 5;
inline constexpr std::uint32_t kMallocHuge1gOnly = 6;
inline constexpr std::uint32_t kMallocHuge1gOnlyP2p = 7;
inline constexpr std::uint32_t kMallocPageMask = 0xff;

}  // namespace onesided::sim
