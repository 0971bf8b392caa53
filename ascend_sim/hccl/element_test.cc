// Half precision against the compiler's own, for every value.
#include "ascend_sim/hccl/element.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace onesided::sim::hccl {
namespace {

constexpr auto kFp16 = static_cast<std::int32_t>(DataType::kFp16);
constexpr auto kBfp16 = static_cast<std::int32_t>(DataType::kBfp16);

float reduce_one(std::int32_t op, float a, float b) {
  switch (static_cast<ReduceOp>(op)) {
    case ReduceOp::kSum: return a + b;
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMax: return std::isnan(a) || std::isnan(b) ? std::nanf("") : std::max(a, b);
    case ReduceOp::kMin: return std::isnan(a) || std::isnan(b) ? std::nanf("") : std::min(a, b);
  }
  return 0;
}

TEST(Element, Fp16EqualsTheCompilersForEveryValue) {
  std::vector<std::uint16_t> a(65536), b(65536), out(65536);
  for (const std::uint16_t other :
       {0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0x7e00}) {
    for (std::uint32_t i = 0; i < 65536; ++i) a[i] = static_cast<std::uint16_t>(i), b[i] = other;
    for (std::int32_t op = 0; op < 4; ++op) {
      reduce_elements(out.data(), a.data(), b.data(), a.size(), kFp16, op);
      for (std::uint32_t i = 0; i < 65536; ++i) {
        const float left = static_cast<float>(std::bit_cast<_Float16>(a[i]));
        const float right = static_cast<float>(std::bit_cast<_Float16>(b[i]));
        const float exact = reduce_one(op, left, right);
        const auto wanted = static_cast<_Float16>(exact);
        const auto found = std::bit_cast<_Float16>(out[i]);
        if (std::isnan(exact)) {
          ASSERT_TRUE(std::isnan(static_cast<float>(found))) << i << " op " << op << " " << other;
        } else {
          ASSERT_EQ(static_cast<float>(found), static_cast<float>(wanted)) << i << " op " << op << " " << other;
        }
      }
    }
  }
}

TEST(Element, Bfp16RoundsToNearestEven) {
  const auto sum = [](std::uint16_t a, std::uint16_t b) {
    std::uint16_t out = 0;
    reduce_elements(&out, &a, &b, 1, kBfp16, 0);
    return out;
  };
  EXPECT_EQ(sum(0x3f80, 0x3b80), 0x3f80);  // 1 + 2^-8: a tie, to even
  EXPECT_EQ(sum(0x3f81, 0x3b80), 0x3f82);  // the next tie goes up
  EXPECT_EQ(sum(0x3f80, 0x3bc0), 0x3f81);  // above the tie
  EXPECT_EQ(sum(0x7f7f, 0x7f7f), 0x7f80);  // overflow
  EXPECT_EQ(sum(0x7fc0, 0x3f80) & 0x7fffu, 0x7fc0u);
}

TEST(Element, IntegersWrap) {
  const std::int16_t a = std::numeric_limits<std::int16_t>::max();
  std::int16_t out = 0;
  reduce_elements(&out, &a, &a, 1, static_cast<std::int32_t>(DataType::kInt16), 1);
  EXPECT_EQ(out, 1);
  const std::int64_t big = std::numeric_limits<std::int64_t>::max(), one = 1;
  std::int64_t sum = 0;
  reduce_elements(&sum, &big, &one, 1, static_cast<std::int32_t>(DataType::kInt64), 0);
  EXPECT_EQ(sum, std::numeric_limits<std::int64_t>::min());
}

TEST(Element, WhatIsOnlyMovedIsNotReduced) {
  for (const DataType type :
       {DataType::kInt128, DataType::kHif8, DataType::kFp8E4m3, DataType::kFp8E5m2, DataType::kFp8E8m0})
    EXPECT_FALSE(reducible(static_cast<std::int32_t>(type), 0));
  EXPECT_EQ(element_bytes(13), 0u);
  EXPECT_FALSE(reducible(13, 0));
  EXPECT_FALSE(reducible(kFp16, 4));
}

}  // namespace
}  // namespace onesided::sim::hccl
