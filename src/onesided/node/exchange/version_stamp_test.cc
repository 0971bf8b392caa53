#include "onesided/node/exchange/version_stamp.h"

#include <gtest/gtest.h>

#include <string>

namespace onesided {
namespace {

std::string copy_of(const VersionStamp& stamp) {
  return {reinterpret_cast<const char*>(&stamp.words()), VersionStamp::kBytes};
}

TEST(VersionStamp, CountsWholeVersions) {
  VersionStamp stamp;
  EXPECT_EQ(VersionStamp::parse(copy_of(stamp)), 0u);
  stamp.begin();
  EXPECT_EQ(VersionStamp::parse(copy_of(stamp)), std::nullopt) << "being written";
  EXPECT_EQ(stamp.end(), 1u);
  EXPECT_EQ(VersionStamp::parse(copy_of(stamp)), 1u);
}

TEST(VersionStamp, BeginTwiceIsOneVersion) {
  VersionStamp stamp;
  stamp.begin();
  stamp.begin();
  EXPECT_EQ(stamp.end(), 1u);
}

TEST(VersionStamp, ATornCopyIsNoVersion) {
  VersionStamp stamp;
  std::string before = copy_of(stamp);
  stamp.begin();
  stamp.end();
  const std::string after = copy_of(stamp);
  EXPECT_EQ(VersionStamp::parse(after.substr(0, 8) + before.substr(8)), std::nullopt);
  EXPECT_EQ(VersionStamp::parse("short"), std::nullopt);
  EXPECT_EQ(VersionStamp::parse(std::string(16, '\0')), std::nullopt);
}

}  // namespace
}  // namespace onesided
