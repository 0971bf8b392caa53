#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

#include "onesided/base/align.h"
#include "onesided/base/clock.h"
#include "onesided/base/fd.h"
#include "onesided/base/result.h"

namespace onesided {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(Align, RoundsUpAndRefusesOverflow) {
  EXPECT_EQ(align_up(0, 512), 0u);
  EXPECT_EQ(align_up(1, 512), 512u);
  EXPECT_EQ(align_up(512, 512), 512u);
  EXPECT_EQ(align_up(kMax - 10, 512), std::nullopt);
}

TEST(Align, RangeWithinNeverOverflows) {
  EXPECT_TRUE(range_within(100, 10, 100, 10));
  EXPECT_FALSE(range_within(99, 10, 100, 10));
  EXPECT_FALSE(range_within(101, 10, 100, 10));
  EXPECT_FALSE(range_within(kMax - 1, 10, 100, 10));
  EXPECT_FALSE(range_within(100, kMax, 0, kMax));
}

Result<int> half(int value) {
  if (value % 2) return Error{Status::kParamInvalid, "odd"};
  return value / 2;
}

Result<int> quarter(int value) {
  ONESIDED_TRY_ASSIGN(h, half(value));
  ONESIDED_TRY_ASSIGN(q, half(h));
  return q;
}

TEST(Result, CarriesValueOrError) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status(), Status::kParamInvalid);
  EXPECT_EQ(quarter(6).error().with_context("quarter").to_string(), "PARAM_INVALID (103900): quarter: odd");
}

TEST(ResultDeathTest, ReadingTheWrongSideStops) { EXPECT_DEATH((void)half(3).value(), "odd"); }

TEST(Status, NamesAndValuesAreThePublicOnes) {
  EXPECT_EQ(static_cast<unsigned>(Status::kFailed), 503900u);
  EXPECT_EQ(status_name(Status::kResourceExhausted), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(status_name(static_cast<Status>(7)), "UNKNOWN");
}

TEST(Deadline, NeverAndPast) {
  EXPECT_TRUE(Deadline::never().is_never());
  EXPECT_TRUE(Deadline::after_ms(std::numeric_limits<std::int64_t>::max()).is_never());
  EXPECT_TRUE(Deadline::after_ms(-5).passed());
  EXPECT_EQ(Deadline::never().poll_timeout_ms(), -1);
}

TEST(Fd, ClosesOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Fd reader(ends[0]);
  Fd writer(ends[1]);
  Fd copy = writer.duplicate();
  EXPECT_TRUE(copy.valid());
  writer = std::move(copy);
  EXPECT_FALSE(copy.valid());  // NOLINT(bugprone-use-after-move): the test checks this
  EXPECT_EQ(::write(writer.get(), "x", 1), 1);
}

}  // namespace
}  // namespace onesided
