// The shapes and values of the public HCCL C API that callers rely on, written down from its public facts. No vendor
// header is included; sizes are asserted because callers were compiled against the vendor's.
#pragma once

#include <cstddef>
#include <cstdint>

#define ONESIDED_HCCL_EXPORT extern "C" __attribute__((visibility("default")))

namespace onesided::sim::hccl {

// Return value of every function. Values of the public API.
enum Code : std::int32_t {
  kSuccess = 0,
  kPara = 1,
  kPtr = 2,
  kMemory = 3,
  kInternal = 4,
  kNotSupport = 5,
  kNotFound = 6,
  kUnavail = 7,
  kSyscall = 8,
  kTimeout = 9,
  kTcpConnect = 11,
  kTcpTransfer = 13,
  kRuntime = 15,
  kNetwork = 19,
  kAgain = 20,
  kRemote = 21,
  kSuspending = 22,
  kOutOfMemory = 24,
};
// "HCCL_E_PARA", ...; "unknown error" for other values.
const char* code_name(std::int32_t code);

enum class DataType : std::int32_t {
  kInt8 = 0,
  kInt16 = 1,
  kInt32 = 2,
  kFp16 = 3,
  kFp32 = 4,
  kInt64 = 5,
  kUint64 = 6,
  kUint8 = 7,
  kUint16 = 8,
  kUint32 = 9,
  kFp64 = 10,
  kBfp16 = 11,
  kInt128 = 12,
  kHif8 = 14,
  kFp8E4m3 = 15,
  kFp8E5m2 = 16,
  kFp8E8m0 = 17,
};

enum class ReduceOp : std::int32_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

inline constexpr std::size_t kRootInfoBytes = 4108;
struct RootInfo {
  char internal[kRootInfoBytes];
};
static_assert(sizeof(RootInfo) == 4108);

inline constexpr std::size_t kNameBytes = 128;  // of a communicator's name, with its end
inline constexpr std::uint32_t kConfigMagic = 0xf0f0f0f0;
inline constexpr std::int32_t kExecTimeoutNotSet = -1;

// The head says how long the caller's structure is; what lies beyond was unknown to the caller and is not read.
struct CommConfig {
  std::size_t nbytes;
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t reserved;
  std::uint32_t buffer_mib;
  std::uint32_t deterministic;
  char name[kNameBytes];
  char udi[128];
  std::uint32_t expansion_mode;
  std::uint32_t traffic_class;
  std::uint32_t service_level;
  std::uint32_t world_rank;
  std::uint64_t job;
  std::uint8_t graph_zero_copy;
  std::int32_t exec_timeout_s;
};
static_assert(offsetof(CommConfig, name) == 32 && offsetof(CommConfig, expansion_mode) == 288);
static_assert(offsetof(CommConfig, job) == 304 && offsetof(CommConfig, exec_timeout_s) == 316);

// How many members of the configuration are understood: HcclGetCommConfigCapability; the execution time-out is the
// last.
inline constexpr std::uint32_t kConfigCapability = 9;

struct SendRecvItem {
  std::int32_t type;  // 0: send, 1: receive
  void* buffer;
  std::uint64_t count;
  std::int32_t data_type;
  std::uint32_t remote_rank;
};
static_assert(sizeof(SendRecvItem) == 32);

}  // namespace onesided::sim::hccl
