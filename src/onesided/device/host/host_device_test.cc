#include "onesided/device/host/host_device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <limits>

#include "onesided/base/align.h"
#include "onesided/device/host/factory.h"

namespace onesided {
namespace {

class HostDeviceOfKind : public testing::TestWithParam<HostMemoryKind> {
 protected:
  HostDevice device_{GetParam()};
};

TEST_P(HostDeviceOfKind, HonoursEveryAlignment) {
  for (std::uint64_t alignment = 1; alignment <= 8 * kMiB; alignment *= 2) {
    auto base = device_.allocate(5000, alignment);
    ASSERT_TRUE(base.ok());
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(*base), alignment));
    std::memset(*base, 0x5a, 5000);
    EXPECT_TRUE(device_.free(*base, 5000).ok());
  }
}

TEST_P(HostDeviceOfKind, RefusesInvalidRequests) {
  EXPECT_EQ(device_.allocate(0, 4096).status(), Status::kParamInvalid);
  EXPECT_EQ(device_.allocate(4096, 3000).status(), Status::kParamInvalid);
  EXPECT_EQ(device_.allocate(1ull << 60, 4096).status(), Status::kResourceExhausted);
  EXPECT_EQ(device_.allocate(std::numeric_limits<std::uint64_t>::max(), 4096).status(), Status::kResourceExhausted);
}

TEST_P(HostDeviceOfKind, FreesOnlyWhatItAllocatedAndOnce) {
  void* base = device_.allocate(8192, 4096).value();
  EXPECT_EQ(device_.free(static_cast<char*>(base) + 4096, 4096).status(), Status::kNotFound);
  EXPECT_EQ(device_.free(base, 4096).status(), Status::kNotFound);
  EXPECT_TRUE(device_.inspect(static_cast<char*>(base) + 8191).ok());
  EXPECT_TRUE(device_.free(base, 8192).ok());
  EXPECT_EQ(device_.free(base, 8192).status(), Status::kNotFound);
  EXPECT_EQ(device_.inspect(base).status(), Status::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostDeviceOfKind, testing::Values(HostMemoryKind::kAnonymous, HostMemoryKind::kShared));

TEST(SharedHostDevice, ExportsAFileThatHoldsTheSameBytesAndNeverShrinks) {
  Device& device = shared_host_device();
  auto* base = static_cast<char*>(device.allocate(3 * kMiB, 2 * kMiB).value());
  std::strcpy(base + kMiB, "seen from elsewhere");
  auto exported = device.export_memory(base + kMiB);
  ASSERT_TRUE(exported.ok());
  EXPECT_EQ(exported->base, reinterpret_cast<std::uintptr_t>(base));
  EXPECT_EQ(exported->nbytes, 3 * kMiB);
  void* elsewhere = ::mmap(nullptr, 3 * kMiB, PROT_READ, MAP_SHARED, exported->file.get(), 0);
  ASSERT_NE(elsewhere, MAP_FAILED);
  EXPECT_STREQ(static_cast<char*>(elsewhere) + kMiB, "seen from elsewhere");
  EXPECT_NE(::ftruncate(exported->file.get(), kMiB), 0);
  EXPECT_TRUE(device.free(base, 3 * kMiB).ok());
  // The exported file keeps the pages for processes that still map them.
  EXPECT_STREQ(static_cast<char*>(elsewhere) + kMiB, "seen from elsewhere");
  ::munmap(elsewhere, 3 * kMiB);
  EXPECT_EQ(device.export_memory(base).status(), Status::kUnsupported);
}

TEST(AnonymousHostDevice, HasNothingToExport) {
  Device& device = anonymous_host_device();
  void* base = device.allocate(4096, 4096).value();
  EXPECT_EQ(device.export_memory(base).status(), Status::kUnsupported);
  EXPECT_TRUE(device.free(base, 4096).ok());
}

}  // namespace
}  // namespace onesided
