#include <gtest/gtest.h>

#include <map>

#include "vendor_abi.h"

namespace ge {
namespace {

TEST(AscendString, IsAValueLikeAString) {
  const AscendString none;
  const AscendString null(nullptr);
  const AscendString a("a");
  const AscendString ab("ab");
  EXPECT_STREQ(none.GetString(), "");
  EXPECT_EQ(none.GetLength(), 0U);
  EXPECT_TRUE(none == null);
  EXPECT_TRUE(none < a && a < ab && ab > a && a <= a && a >= a && a != ab);
  EXPECT_EQ(AscendString("a\0b", 3).GetLength(), 3U);
  EXPECT_TRUE(a < AscendString("a\0b", 3));
  AscendString copy = ab;
  EXPECT_EQ(copy.GetString(), ab.GetString()) << "a copy shares the text";
}

TEST(AscendString, IsAKey) {
  std::map<AscendString, AscendString> options;
  options["adxl.BufferPool"] = "0:0";
  options["AutoConnect"] = "1";
  options["AutoConnect"] = "0";
  EXPECT_EQ(options.size(), 2U);
  EXPECT_STREQ(options["AutoConnect"].GetString(), "0");
}

}  // namespace
}  // namespace ge
