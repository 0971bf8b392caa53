// Concurrency test of the pool: eight threads allocate, free, trim, record and subscribe, under ThreadSanitizer in its
// preset. Each block contains its holder's mark, so two holders of one block are detected.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "onesided/device/host/factory.h"
#include "onesided/memory/fake_device.h"
#include "onesided/memory/pool.h"

namespace onesided {
namespace {

// Records the segments that a listener considers live. Internally synchronized.
class Believes final : public SegmentListener {
 public:
  void on_segment_added(const SegmentInfo& segment) override {
    MutexLock lock(mutex_);
    wrong_ += !alive_.insert(segment.address).second;
  }
  void on_segment_dropped(const SegmentInfo& segment) override {
    MutexLock lock(mutex_);
    wrong_ += alive_.erase(segment.address) != 1;
  }
  int wrong() {
    MutexLock lock(mutex_);
    return wrong_;
  }
  std::size_t alive() {
    MutexLock lock(mutex_);
    return alive_.size();
  }

 private:
  Mutex mutex_;
  std::set<std::uint64_t> alive_;
  int wrong_ = 0;
};

constexpr int kThreads = 8;
constexpr int kSteps = 3000;

TEST(PoolThreads, EveryBlockHasOneHolder) {
  PoolOptions options;
  options.alignment = 4 * kKiB;
  auto pool =
      std::move(Pool::create(anonymous_host_device(), make_device_source(anonymous_host_device()), options)).value();
  auto listener = std::make_shared<Believes>();
  pool->subscribe(listener);
  std::vector<std::thread> threads;
  for (int me = 0; me < kThreads; ++me) {
    threads.emplace_back([&pool, me] {
      std::mt19937_64 random(static_cast<std::uint64_t>(me));
      std::vector<std::uint64_t*> held;
      for (int step = 0; step < kSteps; ++step) {
        if (held.size() > 20 || (!held.empty() && random() % 2)) {
          std::swap(held[random() % held.size()], held.back());
          ASSERT_EQ(*held.back(), static_cast<std::uint64_t>(me)) << "another thread wrote into a held block";
          ASSERT_TRUE(pool->free(held.back()).ok());
          held.pop_back();
        } else {
          const auto block = pool->allocate(1 + random() % (256 * kKiB), stream_number(random() % 2));
          ASSERT_TRUE(block.ok());
          auto* mark = static_cast<std::uint64_t*>(block->address);
          *mark = static_cast<std::uint64_t>(me);
          held.push_back(mark);
          if (step % 16 == 0) ASSERT_TRUE(pool->record_stream(mark, stream_number(7)).ok());
        }
        if (step % 256 == 0) pool->trim();
        if (step % 300 == 0) (void)pool->snapshot();
      }
      for (std::uint64_t* block : held) ASSERT_TRUE(pool->free(block).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->stats().allocation.current, 0);
  pool->trim();
  EXPECT_EQ(pool->stats().reserved_bytes.current, 0);
  EXPECT_EQ(listener->alive(), 0u);
  EXPECT_EQ(listener->wrong(), 0);
}

TEST(PoolThreads, SubscriptionsChangeWhileThePoolGrows) {
  FakeDevice device(512 * kMiB);
  auto pool = std::move(Pool::create(device, make_device_source(device), {})).value();
  std::vector<std::shared_ptr<Believes>> listeners;
  for (int i = 0; i < 40; ++i) listeners.push_back(std::make_shared<Believes>());
  std::vector<std::thread> threads;
  for (int me = 0; me < 4; ++me) {
    threads.emplace_back([&pool, me] {
      std::mt19937_64 random(static_cast<std::uint64_t>(me));
      for (int step = 0; step < 500; ++step) {
        const auto block = pool->allocate(1 + random() % (30 * kMiB), stream_number(random() % 3));
        if (block.ok()) ASSERT_TRUE(pool->free(block->address).ok());
        if (step % 3 == 0) pool->trim();
      }
    });
  }
  for (const auto& listener : listeners) {
    const SubscriptionId id = pool->subscribe(listener);
    std::this_thread::yield();
    pool->unsubscribe(id);
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& listener : listeners) EXPECT_EQ(listener->wrong(), 0);
}

// Field case A20: allocations of 0 bytes share no state.
TEST(PoolThreads, ConcurrentAllocationsOfZeroBytes) {
  FakeDevice device;
  auto pool = std::move(Pool::create(device, make_device_source(device), {})).value();
  std::vector<std::thread> threads;
  for (int me = 0; me < kThreads; ++me) {
    threads.emplace_back([&pool] {
      for (int i = 0; i < 10'000; ++i) {
        const auto nothing = pool->allocate(0);
        ASSERT_TRUE(nothing.ok());
        ASSERT_TRUE(pool->free(nothing->address).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device.allocations(), 0u);
}

}  // namespace
}  // namespace onesided
