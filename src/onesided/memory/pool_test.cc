#include "onesided/memory/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "onesided/memory/fake_device.h"

namespace onesided {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kAlignment = 2 * kMiB;

std::uint64_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

class PoolTest : public testing::Test {
 protected:
  std::unique_ptr<Pool> make(PoolOptions options = {}) {
    return std::move(Pool::create(device_, make_device_source(device_), options)).value();
  }

  FakeDevice device_{80 * kMiB};
};

TEST_F(PoolTest, ChargesTheRoundedLengthAndKeepsTheRequested) {
  auto pool = make();
  const Allocation small = pool->allocate(1).value();
  const Allocation exact = pool->allocate(2 * kMiB).value();
  const Allocation odd = pool->allocate(3 * kMiB).value();
  EXPECT_EQ(small.charged_bytes, 2 * kMiB);
  EXPECT_EQ(exact.charged_bytes, 2 * kMiB) << "an exact multiple is charged exactly";
  EXPECT_EQ(odd.charged_bytes, 4 * kMiB);
  EXPECT_EQ(pool->charged_bytes(odd.address).value(), 4 * kMiB);
  const PoolStats stats = pool->stats();
  EXPECT_EQ(stats.allocated_bytes.current, 8 * kMiB);
  EXPECT_EQ(stats.requested_bytes.current, 5 * kMiB + 1);
  EXPECT_EQ(stats.reserved_bytes.current, 8 * kMiB) << "3 MiB must not cost 20";
}

TEST_F(PoolTest, OptionsAreCheckedWithTheRuleInTheText) {
  for (const std::uint64_t bad : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{256},
                                  std::uint64_t{2048}, 2 * kMiB + 512, 2 * kGiB, std::uint64_t{1} << 63}) {
    const auto pool = Pool::create(device_, make_device_source(device_), {.alignment = bad});
    ASSERT_EQ(pool.status(), Status::kParamInvalid) << bad;
    EXPECT_THAT(pool.error().text(), HasSubstr(std::to_string(bad)));
    EXPECT_THAT(pool.error().text(), HasSubstr("power of two"));
  }
  for (std::uint64_t good = 4 * kKiB; good <= kGiB; good *= 2) {
    EXPECT_TRUE(Pool::create(device_, make_device_source(device_), {.alignment = good}).ok()) << good;
  }
  PoolOptions threshold_without_cap;
  threshold_without_cap.gc_threshold = 0.5;
  EXPECT_EQ(Pool::create(device_, make_device_source(device_), threshold_without_cap).status(), Status::kParamInvalid);
}

// Field case A02.
TEST_F(PoolTest, MisalignedSourceIsSkippedToTheBoundary) {
  auto pool = make();
  device_.misalign(512);
  const Allocation block = pool->allocate(3 * kMiB).value();
  EXPECT_TRUE(is_aligned(number(block.address), kAlignment));
  const auto segment = pool->segment_of(block.address);
  ASSERT_TRUE(segment);
  EXPECT_TRUE(range_within(number(block.address), 4 * kMiB, segment->raw_address, segment->raw_bytes));
  EXPECT_EQ(pool->stats().overhead_bytes.current, segment->raw_bytes - segment->nbytes);
  EXPECT_TRUE(pool->free(block.address).ok());
  EXPECT_EQ(pool->trim(), segment->raw_bytes) << "the prefix does not keep the segment alive";
  EXPECT_EQ(device_.used_bytes(), 0u);
  EXPECT_EQ(device_.wrong_frees(), 0u) << "the source gets the original base and length";
}

// Field case A04.
TEST_F(PoolTest, TheSourceIsNeverAskedForMoreThanTheRoundedRequest) {
  auto pool = make();
  ASSERT_TRUE(pool->allocate(3 * kMiB).ok());
  EXPECT_EQ(device_.largest_request(), 4 * kMiB);
  const auto huge = pool->allocate(std::uint64_t{0} - 100);
  EXPECT_EQ(huge.status(), Status::kResourceExhausted);
  EXPECT_EQ(device_.largest_request(), 4 * kMiB);
}

// Field case A06.
TEST_F(PoolTest, OwnIdleSegmentsAreFreedBeforeExhaustionIsReported) {
  auto pool = make();
  void* first = pool->allocate(60 * kMiB).value().address;
  ASSERT_TRUE(pool->free(first).ok());
  EXPECT_TRUE(pool->allocate(70 * kMiB).ok());
  EXPECT_EQ(device_.frees(), 1u);
  EXPECT_EQ(pool->stats().num_ooms, 0);
  EXPECT_EQ(pool->stats().num_alloc_retries, 1);
}

TEST_F(PoolTest, ExhaustionReportsThePoolsNumbersAndChangesNothing) {
  auto pool = make();
  ASSERT_TRUE(pool->allocate(60 * kMiB).ok());
  const auto refused = pool->allocate(40 * kMiB);
  EXPECT_EQ(refused.status(), Status::kResourceExhausted);
  EXPECT_THAT(refused.error().text(), HasSubstr("62914560 reserved, 62914560 allocated, 0 overhead"));
  EXPECT_EQ(pool->stats().num_ooms, 1);
  EXPECT_EQ(device_.used_bytes(), 60 * kMiB);
  EXPECT_TRUE(pool->allocate(20 * kMiB).ok());
}

TEST_F(PoolTest, OtherPoolsAreReclaimedLast) {
  auto hoarder = make();
  ASSERT_TRUE(hoarder->free(hoarder->allocate(50 * kMiB).value().address).ok());
  std::vector<std::uint64_t> asked;
  const auto reclaim = [&](std::uint64_t wanted) {
    asked.push_back(wanted);
    return hoarder->trim() != 0;
  };
  auto pool = std::move(Pool::create(device_, make_device_source(device_), {}, reclaim)).value();
  ASSERT_TRUE(pool->free(pool->allocate(10 * kMiB).value().address).ok());
  EXPECT_TRUE(pool->allocate(30 * kMiB).ok());
  EXPECT_TRUE(asked.empty()) << "its own idle segment was enough";
  EXPECT_TRUE(pool->allocate(40 * kMiB).ok());
  EXPECT_EQ(asked, std::vector<std::uint64_t>{40 * kMiB});
}

TEST_F(PoolTest, OtherPoolsAreReclaimedForThePreallocationToo) {
  auto hoarder = make();
  ASSERT_TRUE(hoarder->free(hoarder->allocate(70 * kMiB).value().address).ok());
  const auto reclaim = [&](std::uint64_t) { return hoarder->trim() != 0; };
  const auto pool = Pool::create(device_, make_device_source(device_), {.preallocate_bytes = 40 * kMiB}, reclaim);
  ASSERT_TRUE(pool.ok()) << pool.error().to_string();
  EXPECT_EQ(hoarder->stats().reserved_bytes.current, 0);
  const auto hopeless = Pool::create(device_, make_device_source(device_), {.preallocate_bytes = 60 * kMiB}, reclaim);
  EXPECT_THAT(hopeless.error().text(), HasSubstr("0 reserved, 0 allocated"));
}

TEST_F(PoolTest, OtherPoolsAreNotReclaimedIfThatCannotHelp) {
  int asked = 0;
  const auto reclaim = [&](std::uint64_t) { return ++asked != 0; };
  const PoolOptions capped{.max_bytes = 16 * kMiB};
  auto pool = std::move(Pool::create(device_, make_device_source(device_), capped, reclaim)).value();
  ASSERT_TRUE(pool->allocate(16 * kMiB).ok());
  EXPECT_EQ(pool->allocate(2 * kMiB).status(), Status::kResourceExhausted) << "its own limit refuses";
  auto greedy = std::move(Pool::create(device_, make_device_source(device_), {}, reclaim)).value();
  EXPECT_EQ(greedy->allocate(81 * kMiB).status(), Status::kResourceExhausted) << "more than the device has";
  EXPECT_EQ(asked, 0);
}

TEST_F(PoolTest, APatientTrimWaitsForStreams) {
  auto pool = make();
  void* block = pool->allocate(8 * kMiB, stream_number(1)).value().address;
  ASSERT_TRUE(pool->record_stream(block, stream_number(2)).ok());
  device_.hold(stream_number(2));
  ASSERT_TRUE(pool->free(block).ok());
  EXPECT_EQ(pool->trim(), 0u);
  EXPECT_FALSE(device_.waited_on_host());
  EXPECT_EQ(pool->trim(UINT64_MAX, Pool::Patience::kWaitForStreams), 8 * kMiB);
}

TEST_F(PoolTest, AFailedSourceLeavesNoTrace) {
  auto pool = make({.max_bytes = 64 * kMiB});
  device_.fail_after(0);
  EXPECT_EQ(pool->allocate(8 * kMiB).status(), Status::kResourceExhausted);
  EXPECT_EQ(pool->stats().reserved_bytes.current, 0);
  device_.fail_after(-1);
  EXPECT_TRUE(pool->allocate(64 * kMiB).ok()) << "the failed attempt must not count towards the limit";
}

TEST_F(PoolTest, FreedBlocksMergeAndServeTheSamePool) {
  auto pool = make({.preallocate_bytes = 12 * kMiB});
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(pool->allocate(2 * kMiB).value().address);
  EXPECT_EQ(device_.allocations(), 1u);
  for (const int i : {1, 3, 2, 5, 0, 4}) ASSERT_TRUE(pool->free(blocks[static_cast<std::size_t>(i)]).ok());
  const Allocation whole = pool->allocate(12 * kMiB).value();
  EXPECT_EQ(whole.address, blocks[0]);
  EXPECT_EQ(device_.allocations(), 1u);
}

TEST_F(PoolTest, PreallocatedMemoryServesTheFirstRequestingStream) {
  auto pool = make({.preallocate_bytes = 16 * kMiB});
  ASSERT_TRUE(pool->allocate(4 * kMiB, stream_number(5)).ok());
  ASSERT_TRUE(pool->allocate(12 * kMiB, stream_number(5)).ok());
  EXPECT_EQ(device_.allocations(), 1u);
  ASSERT_TRUE(pool->allocate(2 * kMiB, stream_number(6)).ok());
  EXPECT_EQ(device_.allocations(), 2u);
}

TEST_F(PoolTest, StreamsDoNotShareBlocks) {
  auto pool = make();
  void* on_one = pool->allocate(2 * kMiB, stream_number(1)).value().address;
  ASSERT_TRUE(pool->free(on_one).ok());
  EXPECT_NE(pool->allocate(2 * kMiB, stream_number(2)).value().address, on_one);
  EXPECT_EQ(pool->allocate(2 * kMiB, stream_number(1)).value().address, on_one);
}

TEST_F(PoolTest, ARecordedStreamHoldsTheBlockWithoutAHostWait) {
  auto pool = make();
  void* block = pool->allocate(2 * kMiB, stream_number(1)).value().address;
  ASSERT_TRUE(pool->record_stream(block, stream_number(2)).ok());
  ASSERT_TRUE(pool->record_stream(block, stream_number(3)).ok());
  device_.hold(stream_number(2));
  device_.hold(stream_number(3));
  ASSERT_TRUE(pool->free(block).ok());
  EXPECT_EQ(pool->stats().allocated_bytes.current, 0);
  EXPECT_EQ(pool->stats().active_bytes.current, 2 * kMiB);
  EXPECT_NE(pool->allocate(2 * kMiB, stream_number(1)).value().address, block);
  device_.finish(stream_number(2));
  EXPECT_NE(pool->allocate(2 * kMiB, stream_number(1)).value().address, block) << "one of two streams is not enough";
  device_.finish(stream_number(3));
  EXPECT_EQ(pool->allocate(2 * kMiB, stream_number(1)).value().address, block);
  EXPECT_FALSE(device_.waited_on_host());
  EXPECT_EQ(device_.live_events(), 0u);
}

TEST_F(PoolTest, ExhaustionWaitsForStreams) {
  auto pool = make();
  void* block = pool->allocate(70 * kMiB, stream_number(1)).value().address;
  ASSERT_TRUE(pool->record_stream(block, stream_number(2)).ok());
  device_.hold(stream_number(2));
  ASSERT_TRUE(pool->free(block).ok());
  EXPECT_EQ(pool->allocate(70 * kMiB, stream_number(1)).value().address, block);
  EXPECT_TRUE(device_.waited_on_host());
}

TEST_F(PoolTest, ErasedAndOwnStreamsNeedNoEvent) {
  auto pool = make();
  void* block = pool->allocate(2 * kMiB, stream_number(1)).value().address;
  ASSERT_TRUE(pool->record_stream(block, stream_number(1)).ok());
  ASSERT_TRUE(pool->record_stream(block, stream_number(2)).ok());
  ASSERT_TRUE(pool->erase_stream(block, stream_number(2)).ok());
  device_.hold(stream_number(2));
  ASSERT_TRUE(pool->free(block).ok());
  EXPECT_EQ(pool->stats().active_bytes.current, 0);
}

TEST_F(PoolTest, ADeviceInCaptureIsNotCalled) {
  auto pool = make();
  void* block = pool->allocate(2 * kMiB, stream_number(1)).value().address;
  ASSERT_TRUE(pool->record_stream(block, stream_number(2)).ok());
  ASSERT_TRUE(pool->free(block, /*device_quiet=*/true).ok());
  EXPECT_EQ(device_.live_events(), 0u);
  EXPECT_NE(pool->allocate({.nbytes = 2 * kMiB, .stream = stream_number(1), .device_quiet = true}).value().address,
            block);
  EXPECT_EQ(device_.live_events(), 0u);
  // The capture has ended: the event is recorded now and is complete.
  EXPECT_EQ(pool->allocate(2 * kMiB, stream_number(1)).value().address, block);
}

// Field case A20.
TEST_F(PoolTest, InvalidFreesAreErrorsAndZeroBytesHaveNoEffect) {
  auto pool = make({.alignment = 4 * kKiB});
  void* block = pool->allocate(64 * kKiB).value().address;
  EXPECT_EQ(pool->free(static_cast<char*>(block) + 512).status(), Status::kNotFound);
  EXPECT_EQ(pool->free(static_cast<char*>(block) + 4096).status(), Status::kNotFound);
  int elsewhere = 0;
  EXPECT_EQ(pool->free(&elsewhere).status(), Status::kNotFound);
  EXPECT_TRUE(pool->free(block).ok());
  EXPECT_EQ(pool->free(block).status(), Status::kNotFound);
  EXPECT_EQ(pool->record_stream(block, stream_number(2)).status(), Status::kNotFound);
  EXPECT_NE(pool->allocate(64 * kKiB).value().address, pool->allocate(64 * kKiB).value().address);
  EXPECT_EQ(pool->allocate(0).value().address, nullptr);
  EXPECT_TRUE(pool->free(nullptr).ok());
}

// Field case A19 (b), (c): a limit can be used to the last byte, independent of earlier allocations.
TEST_F(PoolTest, LimitsAreUsableToTheLastByte) {
  auto two_halves = make({.max_bytes = 64 * kMiB, .preallocate_bytes = 1 * kMiB});
  EXPECT_TRUE(two_halves->allocate(32 * kMiB).ok());
  EXPECT_TRUE(two_halves->allocate(32 * kMiB).ok());
  EXPECT_EQ(two_halves->allocate(1).status(), Status::kResourceExhausted);
  FakeDevice other;
  auto one = std::move(Pool::create(other, make_device_source(other),
                                    {.max_bytes = 64 * kMiB, .preallocate_bytes = 16 * kMiB}))
                 .value();
  EXPECT_TRUE(one->allocate(64 * kMiB).ok());
}

// Field case A19 (a): a sequence that fitted once fits fifty times, without more memory.
TEST(PoolRounds, TheSameSequenceNeverNeedsMore) {
  const auto round = [](Pool& pool) -> bool {
    std::vector<void*> held;
    std::uint64_t state = 42;
    for (int i = 0; i < 500; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const std::uint64_t dice = state >> 33;
      if (dice % 3 == 0 && !held.empty()) {
        const std::size_t which = dice % held.size();
        if (!pool.free(held[which]).ok()) return false;
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      } else {
        const auto block = pool.allocate(1 + dice % (6 * kMiB), stream_number(dice % 4));
        if (!block.ok()) return false;
        held.push_back(block->address);
      }
    }
    for (void* address : held) {
      if (!pool.free(address).ok()) return false;
    }
    return true;
  };
  FakeDevice device;
  auto first = std::move(Pool::create(device, make_device_source(device), {})).value();
  ASSERT_TRUE(round(*first));
  const auto peak = static_cast<std::uint64_t>(first->stats().reserved_bytes.peak);
  FakeDevice capped_device;
  auto pool =
      std::move(Pool::create(capped_device, make_device_source(capped_device), {.max_bytes = peak * 6 / 5})).value();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(round(*pool)) << "round " << i;
  EXPECT_EQ(pool->stats().num_ooms, 0);
  EXPECT_LE(static_cast<std::uint64_t>(pool->stats().reserved_bytes.peak), peak);
}

TEST_F(PoolTest, GarbageIsCollectedLeastRecentlyUsedFirst) {
  auto pool = make({.max_bytes = 64 * kMiB, .gc_threshold = 0.5});
  void* old_block = pool->allocate(16 * kMiB, stream_number(1)).value().address;
  void* young_block = pool->allocate(16 * kMiB, stream_number(2)).value().address;
  ASSERT_TRUE(pool->free(young_block).ok());
  ASSERT_TRUE(pool->free(old_block).ok());
  ASSERT_TRUE(pool->allocate(8 * kMiB, stream_number(3)).ok());
  EXPECT_FALSE(pool->segment_of(old_block));
  EXPECT_TRUE(pool->segment_of(young_block));
}

TEST_F(PoolTest, NoSplitGivesEachAllocationASegmentOfItsExactCharge) {
  auto pool = make({.no_split = true});
  void* first = pool->allocate(6 * kMiB).value().address;
  ASSERT_TRUE(pool->free(first).ok());
  ASSERT_TRUE(pool->allocate(2 * kMiB).ok());
  EXPECT_EQ(pool->stats().segment.current, 2);
  EXPECT_EQ(pool->allocate(5 * kMiB).value().address, first);
  EXPECT_EQ(pool->stats().reserved_bytes.current, 8 * kMiB);
}

TEST_F(PoolTest, TheGuardIsNeitherBlockNorCharge) {
  auto pool = make({.guard_bytes = 32});
  const Allocation block = pool->allocate(4 * kMiB).value();
  const auto segment = pool->segment_of(block.address);
  EXPECT_EQ(segment->nbytes, 4 * kMiB);
  EXPECT_EQ(segment->raw_bytes, 6 * kMiB) << "charged + at most one granule";
  EXPECT_EQ(pool->stats().allocated_bytes.current, 4 * kMiB);
  EXPECT_EQ(pool->stats().overhead_bytes.current, 2 * kMiB);
}

TEST(PoolGrowth, EqualRequestsLeaveUnderOnePercentIdle) {
  // A KV cache: many equal tensors. For every size the unused rest of the last segment is small.
  for (const std::uint64_t tensor : {2 * kMiB, 8 * kMiB, 18 * kMiB, 64 * kMiB, 130 * kMiB}) {
    FakeDevice device(256 * kGiB);
    auto pool = std::move(Pool::create(device, make_device_source(device), {})).value();
    while (pool->stats().allocated_bytes.current < static_cast<std::int64_t>(16 * kGiB)) {
      ASSERT_TRUE(pool->allocate(tensor).ok());
    }
    const PoolStats stats = pool->stats();
    EXPECT_LE(stats.reserved_bytes.current, stats.allocated_bytes.current * 101 / 100) << tensor;
    EXPECT_LE(stats.segment.current, 500) << tensor;
  }
}

TEST_F(PoolTest, HistoryAndSnapshotReportEvents) {
  auto pool = make();
  pool->keep_history(100);
  void* block = pool->allocate(3 * kMiB, stream_number(1)).value().address;
  ASSERT_TRUE(pool->free(block).ok());
  pool->trim();
  std::vector<PoolAction> actions;
  for (const PoolEvent& event : pool->history()) actions.push_back(event.action);
  EXPECT_EQ(actions, (std::vector{PoolAction::kSegmentAlloc, PoolAction::kAlloc, PoolAction::kFreeRequested,
                                  PoolAction::kFreeCompleted, PoolAction::kSegmentFree}));
  pool->keep_history(2);
  EXPECT_EQ(pool->history().size(), 2u);
  pool->keep_history(0);
  EXPECT_TRUE(pool->history().empty());
}

TEST_F(PoolTest, UnfreedBlocksAreLeakedNotUnmapped) {
  {
    auto pool = make();
    ASSERT_TRUE(pool->allocate(2 * kMiB).ok());
    ASSERT_TRUE(pool->free(pool->allocate(4 * kMiB).value().address).ok());
  }
  EXPECT_EQ(device_.used_bytes(), 2 * kMiB);
}

TEST_F(PoolTest, AfterADeviceResetNothingWaitsForEarlierEvents) {
  auto pool = make();
  void* block = pool->allocate(2 * kMiB, stream_number(1)).value().address;
  ASSERT_TRUE(pool->record_stream(block, stream_number(2)).ok());
  device_.hold(stream_number(2));
  ASSERT_TRUE(pool->free(block).ok());
  pool->forget_events();
  EXPECT_EQ(pool->stats().active_bytes.current, 0);
  EXPECT_EQ(device_.live_events(), 0u);
}

}  // namespace
}  // namespace onesided
