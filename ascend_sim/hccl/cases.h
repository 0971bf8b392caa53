// One collective, as one rank issues and checks it. Its data is small whole numbers that depend only on the case, the
// rank and the place, so every rank knows what every type must hold, to the bit, without asking any rank.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ascend_sim/acl/functions.h"
#include "ascend_sim/hccl/functions.h"

namespace onesided::sim::hccl {

// Device memory of the current device. Confined to one thread.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::uint64_t nbytes) : nbytes_(nbytes) {
    EXPECT_EQ(aclrtMalloc(&address_, nbytes == 0 ? 1 : nbytes, kMallocHugeFirst), 0) << aclGetRecentErrMsg();
    if (address_) std::memset(address_, 0xa5, nbytes);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), nbytes_(other.nbytes_) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() {
    if (!address_) return;
    EXPECT_EQ(aclrtFree(address_), 0);
  }
  // The host may touch simulated device memory, which keeps tests short.
  std::byte* data() const { return static_cast<std::byte*>(address_); }
  std::uint64_t nbytes() const { return nbytes_; }

 private:
  void* address_ = nullptr;
  std::uint64_t nbytes_;
};

enum class CaseKind {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kReduceScatterV,
  kBroadcast,
  kScatter,
  kAllGather,
  kAllGatherV,
  kAllToAll,
  kAllToAllV,
  kAllToAllVC,
  kRing,  // a batch: sends to the next rank, receives from the one before
  kBarrier,
  kCount,
};

// A value.
struct Case {
  CaseKind kind = CaseKind::kBarrier;
  std::int32_t type = 0;
  std::int32_t op = 0;
  std::uint32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t salt = 0;
  bool in_place = false;

  static Case random(std::mt19937_64& random, std::uint32_t ranks, std::uint64_t max_count);
  std::string text() const;
};

// The case on one rank of `ranks`. Confined to one thread; its device is current.
class CaseOnRank {
 public:
  CaseOnRank(const Case& what, std::uint32_t rank, std::uint32_t ranks);
  int issue(void* comm, void* stream);
  // After the stream was synchronised.
  void check() const;

 private:
  std::int64_t value(std::uint32_t rank, std::uint64_t at) const;
  std::int64_t reduced(std::uint64_t at) const;
  std::uint64_t length(std::uint32_t from, std::uint32_t to) const;
  void expect(std::uint64_t at, std::int64_t wanted) const;
  void expect_run(std::uint64_t at, std::uint64_t count, std::uint32_t rank, std::uint64_t from) const;
  void check_vectors() const;
  std::uint64_t source_count() const;
  std::uint64_t target_count() const;

  const Case case_;
  const std::uint32_t rank_, ranks_;
  std::vector<std::uint64_t> send_counts_, send_offsets_, receive_counts_, receive_offsets_, matrix_;
  std::optional<DeviceBuffer> source_, target_;
};

}  // namespace onesided::sim::hccl
