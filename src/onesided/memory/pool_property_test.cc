// Property test of the pool: random operations against a model that contains only the contract. After every step it
// checks alignment, overlap and sums, and compares the device's own counter with the pools' statistics.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "onesided/memory/fake_device.h"
#include "onesided/memory/pool.h"

namespace onesided {
namespace {

struct Case {
  std::uint64_t seed;
  std::uint64_t alignment;
  std::uint64_t capacity;
  std::uint64_t misalignment;
  int streams;
  bool no_split;
  std::uint64_t guard_bytes;
  bool stubborn = false;  // a listener often still uses a segment that the pool wants to free
};

// Printed by gtest when a case fails: everything needed to repeat it.
void PrintTo(const Case& c, std::ostream* out) {
  *out << "seed " << c.seed << " alignment " << c.alignment << " capacity " << c.capacity << " misalignment "
       << c.misalignment << " streams " << c.streams << " no_split " << c.no_split << " guard " << c.guard_bytes
       << " stubborn " << c.stubborn;
}

// If stubborn, releases a segment only at every third attempt.
class Stubborn final : public SegmentListener {
 public:
  void on_segment_added(const SegmentInfo&) override {}
  bool let_go(const SegmentInfo&) override { return !stubborn || ++attempts_ % 3 == 0; }
  void on_segment_dropped(const SegmentInfo&) override {}
  bool stubborn = false;

 private:
  std::uint64_t attempts_ = 0;
};

class PoolProperty : public testing::TestWithParam<Case> {
 protected:
  struct Held {
    std::uint64_t charged = 0;
    std::uint64_t requested = 0;
    bool recorded = false;
  };

  PoolProperty() : device_(GetParam().capacity), random_(GetParam().seed) {
    device_.misalign(GetParam().misalignment);
    PoolOptions options;
    options.alignment = GetParam().alignment;
    options.no_split = GetParam().no_split;
    options.guard_bytes = GetParam().guard_bytes;
    pool_ = std::move(Pool::create(device_, make_device_source(device_), options)).value();
    listener_->stubborn = GetParam().stubborn;
    pool_->subscribe(listener_);
  }

  std::uint64_t pick(std::uint64_t below) { return random_() % below; }

  void allocate() {
    const std::uint64_t shapes[] = {1 + pick(4096), 1 + pick(kMiB), 1 + pick(16 * kMiB), (1 + pick(8)) * 2 * kMiB};
    const std::uint64_t nbytes = shapes[pick(4)];
    const Stream stream = stream_number(pick(static_cast<std::uint64_t>(GetParam().streams)));
    const auto allocation = pool_->allocate(nbytes, stream);
    if (!allocation.ok()) {
      ASSERT_EQ(allocation.status(), Status::kResourceExhausted);
      ++refused_;
      return;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(allocation->address);
    ASSERT_TRUE(is_aligned(address, GetParam().alignment));
    ASSERT_EQ(allocation->charged_bytes, *align_up(nbytes, GetParam().alignment));
    const auto next = held_.lower_bound(address);
    ASSERT_TRUE(next == held_.end() || address + allocation->charged_bytes <= next->first)
        << "overlaps its right neighbour";
    ASSERT_TRUE(next == held_.begin() || std::prev(next)->first + std::prev(next)->second.charged <= address)
        << "overlaps its left neighbour";
    held_[address] = {allocation->charged_bytes, nbytes, false};
  }

  void free_one() {
    auto one = std::next(held_.begin(), static_cast<std::ptrdiff_t>(pick(held_.size())));
    void* address = reinterpret_cast<void*>(one->first);
    ASSERT_TRUE(pool_->free(address).ok());
    ASSERT_EQ(pool_->free(address).status(), Status::kNotFound) << "freed twice";
    held_.erase(one);
  }

  void record_one() {
    auto one = std::next(held_.begin(), static_cast<std::ptrdiff_t>(pick(held_.size())));
    const Stream stream = stream_number(100 + pick(3));
    device_.hold(stream);
    ASSERT_TRUE(pool_->record_stream(reinterpret_cast<void*>(one->first), stream).ok());
  }

  void check_sums() {
    const PoolStats stats = pool_->stats();
    std::int64_t charged = 0;
    std::int64_t requested = 0;
    for (const auto& [address, held] : held_) {
      charged += static_cast<std::int64_t>(held.charged);
      requested += static_cast<std::int64_t>(held.requested);
    }
    ASSERT_EQ(stats.allocated_bytes.current, charged);
    ASSERT_EQ(stats.requested_bytes.current, requested);
    ASSERT_EQ(stats.allocation.current, static_cast<std::int64_t>(held_.size()));
    ASSERT_EQ(stats.reserved_bytes.current, static_cast<std::int64_t>(device_.used_bytes()));
    ASSERT_GE(stats.active_bytes.current, charged);
  }

  // The expensive checks: they visit every block.
  void check_geometry() {
    const PoolStats stats = pool_->stats();
    std::int64_t reserved = 0, overhead = 0, active = 0, split_bytes = 0, split_blocks = 0;
    for (const SegmentSnapshot& segment : pool_->snapshot()) {
      reserved += static_cast<std::int64_t>(segment.info.raw_bytes);
      overhead += static_cast<std::int64_t>(segment.info.raw_bytes - segment.info.nbytes);
      ASSERT_LE(segment.info.address + segment.info.nbytes + GetParam().guard_bytes,
                segment.info.raw_address + segment.info.raw_bytes);
      std::uint64_t at = segment.info.address;
      std::int64_t in_use = 0, free_blocks = 0, free_bytes = 0;
      bool left_free = false;
      for (const BlockSnapshot& block : segment.blocks) {
        ASSERT_EQ(block.address, at);
        at += block.nbytes;
        const bool is_free = block.state == BlockState::kFree;
        ASSERT_FALSE(is_free && left_free) << "free neighbours were not merged";
        left_free = is_free;
        (is_free ? free_bytes : in_use) += static_cast<std::int64_t>(block.nbytes);
        free_blocks += is_free;
        ASSERT_TRUE(block.state != BlockState::kAllocated || held_.count(block.address));
      }
      ASSERT_EQ(at, segment.info.address + segment.info.nbytes);
      active += in_use;
      split_bytes += in_use ? free_bytes : 0;
      split_blocks += in_use ? free_blocks : 0;
    }
    ASSERT_EQ(stats.reserved_bytes.current, reserved);
    ASSERT_EQ(stats.overhead_bytes.current, overhead);
    ASSERT_EQ(stats.active_bytes.current, active);
    ASSERT_EQ(stats.inactive_split_bytes.current, split_bytes);
    ASSERT_EQ(stats.inactive_split.current, split_blocks);
  }

  FakeDevice device_;
  std::mt19937_64 random_;
  std::unique_ptr<Pool> pool_;
  std::shared_ptr<Stubborn> listener_ = std::make_shared<Stubborn>();
  std::map<std::uint64_t, Held> held_;
  int refused_ = 0;
};

TEST_P(PoolProperty, HoldsAfterEveryStep) {
  for (int step = 0; step < 100'000; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const std::uint64_t dice = pick(1000);
    if (!held_.empty() && dice < 970 && pick(200) < held_.size()) {
      free_one();
    } else if (dice < 970 || held_.empty()) {
      allocate();
    } else if (dice < 990) {
      record_one();
    } else if (dice < 996) {
      device_.finish(stream_number(100 + pick(3)));
    } else {
      pool_->trim(UINT64_MAX, pick(4) == 0 ? Pool::Patience::kWaitForStreams : Pool::Patience::kTakeWhatIsDone);
    }
    if (HasFatalFailure()) return;
    check_sums();
    if (step % 64 == 0) check_geometry();
    if (HasFatalFailure()) return;
  }
  while (!held_.empty()) free_one();
  for (int i = 100; i < 103; ++i) device_.finish(stream_number(static_cast<std::uintptr_t>(i)));
  listener_->stubborn = false;
  pool_->trim();
  check_sums();
  check_geometry();
  EXPECT_EQ(device_.used_bytes(), 0u);
  EXPECT_EQ(device_.live_events(), 0u);
  EXPECT_EQ(device_.wrong_frees(), 0u);
  EXPECT_EQ(pool_->stats().num_ooms, refused_);
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, PoolProperty,
    testing::Values(Case{1, 2 * kMiB, 8 * kGiB, 0, 1, false, 0}, Case{2, 2 * kMiB, 512 * kMiB, 0, 3, false, 0},
                    Case{3, 4 * kKiB, 256 * kMiB, 0, 2, false, 32}, Case{4, 4 * kMiB, 1 * kGiB, 0, 2, false, 0},
                    Case{5, 2 * kMiB, 1 * kGiB, 512, 2, false, 32}, Case{6, 2 * kMiB, 1 * kGiB, 0, 2, true, 0},
                    Case{7, 2 * kMiB, 1 * kGiB, 0, 3, false, 32, true}));

}  // namespace
}  // namespace onesided
