#include "onesided/base/mappings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace onesided {
namespace {

const auto kPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));

// Four pages: writable, read-only, nothing, writable.
class MappingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    void* all = ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(all, MAP_FAILED);
    base_ = static_cast<char*>(all);
    std::memset(base_, 7, 4 * kPage);
    ASSERT_EQ(0, ::mprotect(base_ + kPage, kPage, PROT_READ));
    ASSERT_EQ(0, ::munmap(base_ + 2 * kPage, kPage));
  }
  void TearDown() override { ::munmap(base_, 4 * kPage); }
  std::uint64_t at(std::uint64_t offset) const { return reinterpret_cast<std::uint64_t>(base_) + offset; }

  char* base_ = nullptr;
};

TEST_F(MappingsTest, IsMapped) {
  EXPECT_TRUE(is_mapped(at(0), 2 * kPage));
  EXPECT_TRUE(is_mapped(at(5), 2 * kPage - 5));
  EXPECT_FALSE(is_mapped(at(0), 2 * kPage + 1));
  EXPECT_FALSE(is_mapped(at(2 * kPage + 3), 1));
  EXPECT_TRUE(is_mapped(at(3 * kPage), kPage));
  EXPECT_FALSE(is_mapped(3, 5));
  EXPECT_FALSE(is_mapped(~0ULL - 100, 100));
}

TEST_F(MappingsTest, IsWritable) {
  EXPECT_TRUE(is_writable(at(0), kPage));
  EXPECT_TRUE(is_writable(at(100), 1));
  EXPECT_FALSE(is_writable(at(0), kPage + 1));
  EXPECT_FALSE(is_writable(at(kPage), 1));
  EXPECT_FALSE(is_writable(at(2 * kPage), 1));
  EXPECT_TRUE(is_writable(at(3 * kPage), kPage));
  EXPECT_FALSE(is_writable(3, 5));
}

TEST_F(MappingsTest, CopiesThatWouldFaultReturnFalse) {
  char buffer[64] = "something";
  EXPECT_TRUE(copy_unless_it_faults(base_ + 3 * kPage, buffer, sizeof buffer));
  EXPECT_STREQ(base_ + 3 * kPage, "something");
  EXPECT_FALSE(copy_unless_it_faults(base_ + kPage, buffer, sizeof buffer));
  EXPECT_FALSE(copy_unless_it_faults(base_ + 3 * kPage - 32, buffer, sizeof buffer));
  EXPECT_TRUE(copy_unless_it_faults(buffer, base_ + kPage, sizeof buffer));
  EXPECT_EQ(buffer[63], 7);
  EXPECT_FALSE(copy_unless_it_faults(buffer, base_ + 2 * kPage, sizeof buffer));
  EXPECT_EQ(base_[kPage], 7);
}

}  // namespace
}  // namespace onesided
