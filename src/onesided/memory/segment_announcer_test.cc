#include "onesided/memory/segment_announcer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <set>
#include <thread>

#include "onesided/memory/fake_device.h"
#include "onesided/memory/pool.h"

namespace onesided {
namespace {

// A listener made of two functions.
class Hears final : public SegmentListener {
 public:
  using Call = std::function<void(const SegmentInfo&)>;
  explicit Hears(
      Call added, Call dropped = [](const SegmentInfo&) {})
      : added_(std::move(added)), dropped_(std::move(dropped)) {}
  void on_segment_added(const SegmentInfo& segment) override { added_(segment); }
  void on_segment_dropped(const SegmentInfo& segment) override { dropped_(segment); }

 private:
  const Call added_;
  const Call dropped_;
};

class AnnouncementTest : public testing::Test {
 protected:
  FakeDevice device_;
  std::unique_ptr<Pool> pool_ = std::move(Pool::create(device_, make_device_source(device_), {})).value();
};

TEST_F(AnnouncementTest, AddedIsReportedBeforeTheFirstBlockAndDroppedBeforeTheFree) {
  std::uint64_t used_when_added = 0;
  std::uint64_t used_when_dropped = 0;
  std::int64_t allocated_when_added = -1;
  pool_->subscribe(std::make_shared<Hears>(
      [&](const SegmentInfo&) {
        used_when_added = device_.used_bytes();
        allocated_when_added = pool_->stats().allocation.current;
      },
      [&](const SegmentInfo& segment) {
        used_when_dropped = device_.used_bytes();
        EXPECT_EQ(segment.nbytes, 4 * kMiB);
      }));
  ASSERT_TRUE(pool_->free(pool_->allocate(4 * kMiB).value().address).ok());
  pool_->trim();
  EXPECT_EQ(used_when_added, 4 * kMiB);
  EXPECT_EQ(allocated_when_added, 0);
  EXPECT_EQ(used_when_dropped, 4 * kMiB);
  EXPECT_EQ(device_.used_bytes(), 0u);
}

TEST_F(AnnouncementTest, ALateSubscriberIsNotifiedOfEachSegmentOnce) {
  ASSERT_TRUE(pool_->allocate(4 * kMiB).ok());
  std::multiset<std::uint64_t> heard;
  pool_->subscribe(std::make_shared<Hears>([&](const SegmentInfo& segment) { heard.insert(segment.address); }));
  ASSERT_TRUE(pool_->allocate(40 * kMiB).ok());
  EXPECT_EQ(heard.size(), 2u);
  EXPECT_EQ(std::set<std::uint64_t>(heard.begin(), heard.end()).size(), 2u);
}

TEST_F(AnnouncementTest, ACallbackMayUseThePoolAndUnsubscribeItself) {
  SubscriptionId id = 0;
  int calls = 0;
  ASSERT_TRUE(pool_->free(pool_->allocate(4 * kMiB).value().address).ok());
  id = pool_->subscribe(std::make_shared<Hears>([&](const SegmentInfo&) {
    ++calls;
    ASSERT_TRUE(pool_->free(pool_->allocate(2 * kMiB).value().address).ok());
    if (calls == 2) pool_->unsubscribe(id);
  }));
  ASSERT_TRUE(pool_->allocate(64 * kMiB).ok());
  ASSERT_TRUE(pool_->allocate(256 * kMiB).ok());
  EXPECT_EQ(calls, 2) << "the existing segments, and one more; none after it had unsubscribed";
}

TEST_F(AnnouncementTest, ThePoolDoesNotGrowForACallbackAboutItsGrowth) {
  int calls = 0;
  Status status = Status::kSuccess;
  pool_->subscribe(std::make_shared<Hears>([&](const SegmentInfo&) {
    ++calls;
    status = pool_->allocate(2 * kMiB).status();
  }));
  ASSERT_TRUE(pool_->allocate(2 * kMiB).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(status, Status::kResourceExhausted);
  EXPECT_EQ(pool_->stats().segment.current, 1);
}

TEST_F(AnnouncementTest, UnsubscribeWaitsForACallOnAnotherThread) {
  // T0: in the callback | T1: unsubscribe -> must not return before T0 has left
  std::latch entered(1);
  std::latch leave(1);
  std::atomic<bool> left{false};
  const SubscriptionId id = pool_->subscribe(std::make_shared<Hears>([&](const SegmentInfo&) {
    entered.count_down();
    leave.wait();
    left = true;
  }));
  std::thread grows([&] { ASSERT_TRUE(pool_->allocate(2 * kMiB).ok()); });
  entered.wait();
  std::thread opens([&] { leave.count_down(); });
  pool_->unsubscribe(id);
  EXPECT_TRUE(left);
  grows.join();
  opens.join();
}

// Releases segments when the test allows it.
class Holds final : public SegmentListener {
 public:
  void on_segment_added(const SegmentInfo&) override {}
  bool let_go(const SegmentInfo&) override {
    ++asked;
    return willing;
  }
  void on_segment_dropped(const SegmentInfo&) override { ++dropped; }
  bool willing = false;
  int asked = 0;
  int dropped = 0;
};

TEST_F(AnnouncementTest, ASegmentThatAListenerUsesRemainsAndIsNotReused) {
  auto holds = std::make_shared<Holds>();
  auto other = std::make_shared<Holds>();
  other->willing = true;
  pool_->subscribe(other);
  pool_->subscribe(holds);
  void* block = pool_->allocate(4 * kMiB).value().address;
  ASSERT_TRUE(pool_->free(block).ok());
  EXPECT_EQ(pool_->trim(), 0u);
  EXPECT_EQ(device_.used_bytes(), 4 * kMiB);
  EXPECT_EQ(pool_->stats().reserved_bytes.current, 4 * kMiB);
  EXPECT_EQ(other->dropped, 0) << "listeners must not be notified of a segment that is not dropped";
  EXPECT_NE(pool_->allocate(4 * kMiB).value().address, block) << "that memory is still in use";
  holds->willing = true;
  EXPECT_EQ(pool_->trim(), 4 * kMiB);
  EXPECT_EQ(holds->asked, 2);
  EXPECT_EQ(holds->dropped + other->dropped, 2);
}

TEST_F(AnnouncementTest, ASegmentIsNotDroppedDuringItsReplay) {
  // T0: subscribe, replaying S | T1: trim -> S remains until T0 has notified
  ASSERT_TRUE(pool_->free(pool_->allocate(2 * kMiB).value().address).ok());
  bool trimmed_meanwhile = true;
  pool_->subscribe(std::make_shared<Hears>(
      [&](const SegmentInfo&) { std::thread([&] { trimmed_meanwhile = pool_->trim() != 0; }).join(); }));
  EXPECT_FALSE(trimmed_meanwhile);
  EXPECT_EQ(pool_->trim(), 2 * kMiB);
}

}  // namespace
}  // namespace onesided
