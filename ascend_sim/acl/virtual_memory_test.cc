#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/sim_api.h"
#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

constexpr std::uint64_t kPiece = 2 * kMiB;

class Virtual : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), kAclOk); }
  static void* piece(std::uint64_t nbytes = kPiece, std::uint32_t device = 0) {
    const PhysicalMemProp prop{0, 0, 4, {device, MemLocationType::kDevice}, 0};
    void* handle = nullptr;
    EXPECT_EQ(aclrtMallocPhysical(&handle, nbytes, &prop, 0), kAclOk);
    return handle;
  }
  static char* range(std::uint64_t nbytes) {
    void* base = nullptr;
    EXPECT_EQ(aclrtReserveMemAddress(&base, nbytes, 0, nullptr, 1), kAclOk);
    return static_cast<char*>(base);
  }
};

TEST_F(Virtual, PiecesSideBySideAreOneRange) {
  char* base = range(4 * kPiece);
  EXPECT_TRUE(is_aligned(reinterpret_cast<std::uint64_t>(base), kAscendPageBytes));
  void* pieces[3] = {piece(), piece(), piece()};
  for (int i = 0; i < 3; ++i) ASSERT_EQ(aclrtMapMem(base + i * kPiece, kPiece, 0, pieces[i], 0), kAclOk);
  EXPECT_EQ(aclrtMemset(base, 3 * kPiece, 3, 3 * kPiece), kAclOk) << "across pieces";
  EXPECT_EQ(base[3 * kPiece - 1], 3);
  EXPECT_EQ(aclrtMemset(base, 4 * kPiece, 3, 4 * kPiece), kRtParamInvalid) << "the last part has no memory";
  ASSERT_EQ(aclrtUnmapMem(base + kPiece), kAclOk);
  EXPECT_EQ(aclrtMemset(base, 3 * kPiece, 3, 3 * kPiece), kRtParamInvalid) << "a hole in the middle";
  EXPECT_EQ(aclrtReleaseMemAddress(base), kRtParamInvalid) << "still in use";
  ASSERT_EQ(aclrtUnmapMem(base), kAclOk);
  ASSERT_EQ(aclrtUnmapMem(base + 2 * kPiece), kAclOk);
  EXPECT_EQ(aclrtUnmapMem(base), kRtParamInvalid);
  EXPECT_EQ(aclrtReleaseMemAddress(base), kAclOk);
  EXPECT_EQ(aclrtReleaseMemAddress(base), kRtParamInvalid);
  for (void* handle : pieces) EXPECT_EQ(aclrtFreePhysical(handle), kAclOk);
  EXPECT_EQ(aclrtFreePhysical(pieces[0]), kRtParamInvalid);
}

TEST_F(Virtual, APieceKeepsItsBytesWhereverItIsMapped) {
  char* base = range(2 * kPiece);
  void* handle = piece();
  ASSERT_EQ(aclrtMapMem(base, kPiece, 0, handle, 0), kAclOk);
  std::strcpy(base, "kept");
  ASSERT_EQ(aclrtMapMem(base + kPiece, kPiece, 0, handle, 0), kAclOk) << "mapped twice";
  EXPECT_STREQ(base + kPiece, "kept");
  ASSERT_EQ(aclrtUnmapMem(base), kAclOk);
  ASSERT_EQ(aclrtFreePhysical(handle), kAclOk);
  EXPECT_STREQ(base + kPiece, "kept") << "lives as long as a mapping does";
  ASSERT_EQ(aclrtUnmapMem(base + kPiece), kAclOk);
  ASSERT_EQ(aclrtReleaseMemAddress(base), kAclOk);
}

TEST_F(Virtual, MemoryIsCountedOnceUntilItsLastUse) {
  onesided_sim_device_stats before{};
  onesided_sim_device_stats now{};
  ASSERT_EQ(onesided_sim_stats(0, &before), kAclOk);
  char* base = range(kPiece);
  void* handle = piece();
  ASSERT_EQ(aclrtMapMem(base, kPiece, 0, handle, 0), kAclOk);
  ASSERT_EQ(onesided_sim_stats(0, &now), kAclOk);
  EXPECT_EQ(now.used_bytes - before.used_bytes, kPiece);
  ASSERT_EQ(aclrtFreePhysical(handle), kAclOk);
  ASSERT_EQ(aclrtUnmapMem(base), kAclOk);
  ASSERT_EQ(onesided_sim_stats(0, &now), kAclOk);
  EXPECT_EQ(now.used_bytes, before.used_bytes);
  ASSERT_EQ(aclrtReleaseMemAddress(base), kAclOk);
}

TEST_F(Virtual, BadCallsAreErrors) {
  char* base = range(2 * kPiece);
  void* handle = piece();
  EXPECT_EQ(aclrtMapMem(base + 1, kPiece, 0, handle, 0), kRtParamInvalid);
  EXPECT_EQ(aclrtMapMem(base, 2 * kPiece, 0, handle, 0), kRtParamInvalid) << "longer than the piece";
  EXPECT_EQ(aclrtMapMem(base, 0, 0, handle, 0), kRtParamInvalid);
  EXPECT_EQ(aclrtMapMem(base, kPiece, kPiece, handle, 0), kRtParamInvalid);
  EXPECT_EQ(aclrtMapMem(base + 2 * kPiece, kPiece, 0, handle, 0), kRtParamInvalid) << "outside of the range";
  EXPECT_EQ(aclrtMapMem(base, kPiece, 0, base, 0), kRtParamInvalid) << "no piece";
  ASSERT_EQ(aclrtMapMem(base, kPiece, 0, handle, 0), kAclOk);
  EXPECT_EQ(aclrtMapMem(base, kPiece, 0, handle, 0), kRtParamInvalid) << "occupied";
  const PhysicalMemProp prop{0, 0, 4, {0, MemLocationType::kDevice}, 0};
  const PhysicalMemProp nowhere{0, 0, 4, {9, MemLocationType::kDevice}, 0};
  void* other = nullptr;
  EXPECT_EQ(aclrtMallocPhysical(&other, kPiece + 1, &prop, 0), kRtParamInvalid);
  EXPECT_EQ(aclrtMallocPhysical(&other, kPiece, &nowhere, 0), kRtInvalidDevice);
  EXPECT_EQ(aclrtMallocPhysical(&other, 1ull << 50, &prop, 0), kRtMemoryAllocation);
  EXPECT_EQ(aclrtReserveMemAddress(nullptr, kPiece, 0, nullptr, 0), kRtParamInvalid);
  void* range_base = nullptr;
  EXPECT_EQ(aclrtReserveMemAddress(&range_base, 0, 0, nullptr, 0), kRtParamInvalid);
  EXPECT_EQ(aclrtReserveMemAddress(&range_base, SIZE_MAX - 5, 0, nullptr, 0), kRtParamInvalid);
  EXPECT_EQ(aclrtReserveMemAddress(&range_base, kPiece, 3, nullptr, 0), kRtParamInvalid);
  ASSERT_EQ(aclrtUnmapMem(base), kAclOk);
  ASSERT_EQ(aclrtFreePhysical(handle), kAclOk);
  ASSERT_EQ(aclrtReleaseMemAddress(base), kAclOk);
}

// The driver's rule for memory that leaves the process, in its words.
TEST_F(Virtual, ExportAsksForWholeHugePages) {
  void* huge = nullptr;
  void* normal = nullptr;
  ASSERT_EQ(aclrtMalloc(&huge, 4 * kMiB, kMallocHugeOnly), kAclOk);
  ASSERT_EQ(aclrtMalloc(&normal, 4 * kMiB, kMallocNormalOnly), kAclOk);
  char key[65];
  EXPECT_EQ(aclrtIpcMemGetExportKey(normal, 2 * kMiB, key, sizeof(key), 0), kRtDriverInternal);
  EXPECT_THAT(aclGetRecentErrMsg(),
              testing::AllOf(testing::HasSubstr("Invalid para. va=0x"), testing::HasSubstr("page_size=2097152")));
  EXPECT_EQ(aclrtIpcMemGetExportKey(huge, kMiB, key, sizeof(key), 0), kRtDriverInternal);
  EXPECT_EQ(aclrtIpcMemGetExportKey(static_cast<char*>(huge) + kMiB, 2 * kMiB, key, sizeof(key), 0), kRtDriverInternal);
  EXPECT_EQ(aclrtIpcMemGetExportKey(huge, 6 * kMiB, key, sizeof(key), 0), kRtParamInvalid) << "beyond the allocation";
  EXPECT_EQ(aclrtIpcMemGetExportKey(huge, 2 * kMiB, key, 5, 0), kRtParamInvalid) << "no capacity for a key";
  ASSERT_EQ(aclrtIpcMemGetExportKey(static_cast<char*>(huge) + 2 * kMiB, 2 * kMiB, key, sizeof(key), 0), kAclOk);
  void* imported = nullptr;
  ASSERT_EQ(aclrtIpcMemImportByKey(&imported, key, 0), kAclOk);
  static_cast<char*>(imported)[5] = 11;
  EXPECT_EQ(static_cast<char*>(huge)[2 * kMiB + 5], 11);
  EXPECT_EQ(aclrtIpcMemImportByKey(&imported, key, 0), kRtParamInvalid) << "imported already";
  EXPECT_EQ(aclrtIpcMemClose(key), kAclOk);
  EXPECT_EQ(aclrtFree(huge), kAclOk) << "ends the export";
  EXPECT_EQ(aclrtIpcMemImportByKey(&imported, key, 0), kRtParamInvalid);
  EXPECT_EQ(aclrtIpcMemImportByKey(&imported, "no key", 0), kRtParamInvalid);
  EXPECT_EQ(aclrtIpcMemClose("no key"), kRtParamInvalid);
  EXPECT_EQ(aclrtFree(normal), kAclOk);
}

}  // namespace
}  // namespace onesided::sim
