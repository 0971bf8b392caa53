#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/sim_api.h"
#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

class Memory : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), kAclOk); }

  static void* device_memory(std::size_t nbytes, std::uint32_t policy = kMallocHugeFirst) {
    void* address = nullptr;
    EXPECT_EQ(aclrtMalloc(&address, nbytes, policy), kAclOk);
    return address;
  }
  static onesided_sim_device_stats stats() {
    onesided_sim_device_stats now{};
    EXPECT_EQ(onesided_sim_stats(0, &now), kAclOk);
    return now;
  }
};

TEST_F(Memory, AddressesFollowThePolicy) {
  void* huge = device_memory(1, kMallocHugeOnly);
  void* big = device_memory(3 * kMiB, kMallocHugeFirst);
  void* normal = device_memory(3 * kMiB, kMallocNormalOnly);
  EXPECT_TRUE(is_aligned(reinterpret_cast<std::uint64_t>(huge), kAscendPageBytes));
  EXPECT_TRUE(is_aligned(reinterpret_cast<std::uint64_t>(big), kAscendPageBytes));
  EXPECT_TRUE(is_aligned(reinterpret_cast<std::uint64_t>(normal), 4096));
  EXPECT_FALSE(is_aligned(reinterpret_cast<std::uint64_t>(normal), kAscendPageBytes));
  for (void* address : {huge, big, normal}) EXPECT_EQ(aclrtFree(address), kAclOk);
}

// Whether the 32 bytes behind a range can be read: the kernel says so without a fault.
bool readable_behind(const void* base, std::size_t nbytes) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const bool readable = ::write(ends[1], static_cast<const char*>(base) + nbytes, 32) == 32;
  ::close(ends[0]);
  ::close(ends[1]);
  return readable;
}

TEST_F(Memory, MallocKeepsReadableBytesBehindTheRangeAndAlign32DoesNot) {
  const auto before = stats();
  void* kept = device_memory(2 * kMiB, kMallocHugeOnly);
  void* bare = nullptr;
  EXPECT_EQ(aclrtMallocAlign32(&bare, 2 * kMiB, kMallocHugeOnly), kAclOk);
  EXPECT_TRUE(readable_behind(kept, 2 * kMiB));
  EXPECT_FALSE(readable_behind(bare, 2 * kMiB));
  EXPECT_EQ(stats().used_bytes - before.used_bytes, 4 * kMiB) << "what is kept behind is not charged";
  for (void* address : {kept, bare}) EXPECT_EQ(aclrtFree(address), kAclOk);
}

TEST_F(Memory, CountsBytesAndCalls) {
  const auto before = stats();
  void* address = device_memory(3 * kMiB, kMallocHugeOnly);
  auto now = stats();
  EXPECT_EQ(now.used_bytes - before.used_bytes, 4 * kMiB);
  EXPECT_EQ(now.mallocs - before.mallocs, 1u);
  EXPECT_GE(now.machine_used_bytes, now.used_bytes);
  EXPECT_EQ(aclrtFree(address), kAclOk);
  now = stats();
  EXPECT_EQ(now.used_bytes, before.used_bytes);
  EXPECT_EQ(now.frees - before.frees, 1u);
  EXPECT_GE(now.peak_bytes, before.used_bytes + 4 * kMiB);
}

TEST_F(Memory, ExhaustionIsTheRuntimesOwnCodeAndChangesNothing) {
  const auto before = stats();
  void* address = nullptr;
  EXPECT_EQ(aclrtMalloc(&address, before.capacity_bytes + 1, kMallocHugeFirst), kRtMemoryAllocation);
  EXPECT_EQ(address, nullptr);
  EXPECT_THAT(aclGetRecentErrMsg(), testing::HasSubstr("out of memory"));
  void* most = nullptr;
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  ASSERT_EQ(aclrtGetMemInfo(1, &free_bytes, &total_bytes), kAclOk);
  EXPECT_EQ(total_bytes, before.capacity_bytes);
  ASSERT_EQ(aclrtMalloc(&most, free_bytes, kMallocHugeOnly), kAclOk);
  EXPECT_EQ(aclrtMalloc(&address, 1, kMallocHugeOnly), kRtMemoryAllocation);
  EXPECT_EQ(aclrtFree(most), kAclOk);
  EXPECT_EQ(stats().used_bytes, before.used_bytes);
}

TEST_F(Memory, BadCallsAreErrorsWithWords) {
  void* address = nullptr;
  EXPECT_EQ(aclrtMalloc(nullptr, 1, 0), kRtParamInvalid);
  EXPECT_EQ(aclrtMalloc(&address, 0, 0), kRtParamInvalid);
  EXPECT_EQ(aclrtMalloc(&address, 1, 77), kRtParamInvalid);
  EXPECT_EQ(aclrtMalloc(&address, SIZE_MAX, kMallocHugeOnly), kRtMemoryAllocation);
  EXPECT_EQ(aclrtFree(nullptr), kRtParamInvalid);
  int on_stack = 0;
  EXPECT_EQ(aclrtFree(&on_stack), kRtParamInvalid);
  EXPECT_THAT(aclGetRecentErrMsg(), testing::HasSubstr("aclrtFree"));
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr) << "a message is given once";
  address = device_memory(kMiB);
  EXPECT_EQ(aclrtFree(static_cast<char*>(address) + 1), kRtParamInvalid);
  EXPECT_EQ(aclrtFreeHost(address), kRtParamInvalid);
  EXPECT_EQ(aclrtFree(address), kAclOk);
  EXPECT_EQ(aclrtFree(address), kRtParamInvalid) << "freed twice";
}

TEST_F(Memory, PointersSayWhatTheyAre) {
  const auto attributes = [](const void* address) {
    PtrAttributes answer{};
    EXPECT_EQ(aclrtPointerGetAttributes(address, &answer), kAclOk);
    return answer;
  };
  ASSERT_EQ(aclrtSetDevice(1), kAclOk);
  void* device = device_memory(4 * kMiB, kMallocHugeOnly);
  ASSERT_EQ(aclrtSetDevice(0), kAclOk);
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, 100), kAclOk);
  std::vector<char> plain(4096);
  EXPECT_EQ(attributes(static_cast<char*>(device) + 4 * kMiB - 1).location.type, MemLocationType::kDevice);
  EXPECT_EQ(attributes(device).location.id, 1u);
  EXPECT_EQ(attributes(device).page_size, kAscendPageBytes);
  EXPECT_EQ(attributes(host).location.type, MemLocationType::kHost);
  EXPECT_EQ(attributes(plain.data()).location.type, MemLocationType::kUnregistered);
  void* mapped = nullptr;
  ASSERT_EQ(aclrtHostRegister(plain.data(), plain.size(), 0, &mapped), kAclOk);
  EXPECT_EQ(mapped, plain.data());
  EXPECT_EQ(attributes(plain.data() + 100).location.type, MemLocationType::kHost);
  EXPECT_EQ(aclrtHostRegister(plain.data() + 10, 10, 0, &mapped), kRtParamInvalid) << "registered twice";
  EXPECT_EQ(aclrtHostUnregister(plain.data()), kAclOk);
  EXPECT_EQ(aclrtHostUnregister(plain.data()), kRtParamInvalid);
  EXPECT_EQ(aclrtFree(device), kAclOk);
  EXPECT_EQ(aclrtFreeHost(host), kAclOk);
}

TEST_F(Memory, CopiesCheckKindsAndRanges) {
  void* device = device_memory(4 * kMiB, kMallocHugeOnly);
  std::vector<char> host(4 * kMiB, 'x');
  EXPECT_EQ(aclrtMemcpy(device, 4 * kMiB, host.data(), 4 * kMiB, 1), kAclOk);
  std::vector<char> back(4 * kMiB);
  EXPECT_EQ(aclrtMemcpy(back.data(), back.size(), device, 4 * kMiB, 2), kAclOk);
  EXPECT_EQ(back, host);
  EXPECT_EQ(aclrtMemcpy(back.data(), back.size(), device, 4 * kMiB, 1), kRtParamInvalid) << "wrong way round";
  EXPECT_EQ(aclrtMemcpy(back.data(), 10, device, 11, 2), kRtParamInvalid) << "no capacity";
  EXPECT_EQ(aclrtMemcpy(back.data(), back.size(), static_cast<char*>(device) + 1, 4 * kMiB, 2), kRtParamInvalid);
  EXPECT_THAT(aclGetRecentErrMsg(), testing::HasSubstr("beyond"));
  EXPECT_EQ(aclrtMemcpy(back.data(), back.size(), device, 1, 99), kRtParamInvalid);
  EXPECT_EQ(aclrtMemcpy(nullptr, 1, device, 1, 2), kRtParamInvalid);
  EXPECT_EQ(aclrtMemcpy(back.data(), back.size(), device, 0, 2), kRtParamInvalid);
  EXPECT_EQ(aclrtMemset(device, 4 * kMiB, 7, 4 * kMiB), kAclOk);
  EXPECT_EQ(aclrtMemcpy(back.data(), back.size(), device, 100, 4), kAclOk) << "the kind can be left to the runtime";
  EXPECT_EQ(back[99], 7);
  EXPECT_EQ(aclrtMemset(static_cast<char*>(device) + 1, 8 * kMiB, 7, 4 * kMiB), kRtParamInvalid);
  EXPECT_EQ(aclrtFree(device), kAclOk);
}

TEST_F(Memory, BatchesMoveAllOrNothing) {
  void* device = device_memory(2 * kMiB, kMallocHugeOnly);
  char source[2][8] = {"first", "second"};
  void* to[2] = {device, static_cast<char*>(device) + 100};
  void* from[2] = {source[0], source[1]};
  std::size_t capacity[2] = {8, 8};
  std::size_t nbytes[2] = {8, 8};
  MemcpyBatchAttr attribute{{0, MemLocationType::kDevice}, {0, MemLocationType::kHost}, {}};
  std::size_t starts[1] = {0};
  std::size_t failed = 5;
  ASSERT_EQ(aclrtMemcpyBatch(to, capacity, from, nbytes, 2, &attribute, starts, 1, &failed), kAclOk);
  EXPECT_EQ(failed, SIZE_MAX);
  EXPECT_STREQ(static_cast<char*>(device) + 100, "second");
  to[1] = source[0];
  std::strcpy(source[0], "other");
  EXPECT_EQ(aclrtMemcpyBatch(to, capacity, from, nbytes, 2, &attribute, starts, 1, &failed), kRtParamInvalid);
  EXPECT_EQ(failed, 1u);
  EXPECT_STREQ(static_cast<char*>(device), "first") << "nothing moved";
  EXPECT_EQ(aclrtMemcpyBatch(to, capacity, from, nbytes, 0, &attribute, starts, 1, &failed), kRtParamInvalid);
  EXPECT_EQ(aclrtFree(device), kAclOk);
}

TEST_F(Memory, AnotherMappingOfTheExportedFileIsTheSameMemory) {
  void* device = device_memory(4 * kMiB, kMallocHugeOnly);
  int fd = -1;
  std::uint64_t offset = 1;
  std::uint64_t base = 0;
  std::uint64_t nbytes = 0;
  ASSERT_EQ(onesided_sim_export(static_cast<char*>(device) + 100, &fd, &offset, &base, &nbytes), kAclOk);
  EXPECT_EQ(base, reinterpret_cast<std::uint64_t>(device));
  EXPECT_EQ(nbytes, 4 * kMiB);
  auto* elsewhere =
      static_cast<char*>(::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset)));
  ASSERT_NE(elsewhere, MAP_FAILED);
  elsewhere[100] = 42;
  EXPECT_EQ(static_cast<char*>(device)[100], 42);
  EXPECT_EQ(aclrtFree(device), kAclOk);
  EXPECT_EQ(elsewhere[100], 42) << "freeing pulls nothing away from a peer";
  ::munmap(elsewhere, nbytes);
  int plain = 0;
  EXPECT_EQ(onesided_sim_export(&plain, &fd, &offset, &base, &nbytes), kRtParamInvalid);
}

}  // namespace
}  // namespace onesided::sim
