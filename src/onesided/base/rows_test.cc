#include "onesided/base/rows.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace onesided {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(Rows, SpanIsFromTheFirstByteToTheLast) {
  EXPECT_EQ(checked_span(12, 0, 0), 12);
  EXPECT_EQ(checked_span(12, 12, 0), 12);
  EXPECT_EQ(checked_span(12, 4, 4), 12);
  EXPECT_EQ(checked_span(12, 4, 10), 24);
  EXPECT_EQ(span_of(12, 4, 10), 24);
}

TEST(Rows, WhatCannotBeIsNoSpan) {
  EXPECT_FALSE(checked_span(13, 4, 10)) << "half a row";
  EXPECT_FALSE(checked_span(0, 4, 10)) << "no row";
  EXPECT_FALSE(checked_span(12, 4, 3)) << "rows overlap";
  EXPECT_FALSE(checked_span(2 * (kMaxRows + 1), 2, 4)) << "too many rows";
  EXPECT_FALSE(checked_span(8, 4, kMax)) << "the span wraps";
  EXPECT_FALSE(checked_span(12, 4, kMax / 2)) << "the span wraps by the last row";
  EXPECT_EQ(checked_span(8, 4, kMax - 4), kMax);
}

TEST(Rows, RunsThatTouchAreOne) {
  const auto runs = [](std::uint64_t nbytes, std::uint64_t row_bytes, std::uint64_t pitch) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
    each_run(100, nbytes, row_bytes, pitch, [&](std::uint64_t at, std::uint64_t n) { out.emplace_back(at, n); });
    return out;
  };
  using Runs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(runs(12, 0, 0), (Runs{{100, 12}}));
  EXPECT_EQ(runs(12, 4, 4), (Runs{{100, 12}}));
  EXPECT_EQ(runs(12, 4, 10), (Runs{{100, 4}, {110, 4}, {120, 4}}));
}

}  // namespace
}  // namespace onesided
