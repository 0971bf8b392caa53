#include "onesided/node/exchange/receive_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "onesided/base/align.h"
#include "onesided/node/exchange/fake_engine_port.h"

namespace onesided {
namespace {

class ReceivePoolTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeEnginePort> engine_ = std::make_shared<FakeEnginePort>();
  std::shared_ptr<ReceivePool> pool_ = ReceivePool::create(engine_, 0).value();
};

TEST_F(ReceivePoolTest, BlocksLieInRegisteredMemory) {
  std::vector<ReceivePool::Block> blocks;
  for (const std::uint64_t nbytes : {1ULL, 4096ULL, 100'000ULL, 20'000'000ULL}) {
    blocks.push_back(pool_->allocate(nbytes).value());
    const auto address = reinterpret_cast<std::uint64_t>(blocks.back().address());
    EXPECT_TRUE(is_aligned(address, ReceivePool::kAlignment));
    EXPECT_TRUE(engine_->covers({address, nbytes, MemType::kHost}));
    std::memset(blocks.back().address(), 0xA5, nbytes);
  }
}

TEST_F(ReceivePoolTest, TheSecondTransferRegistersNothing) {
  std::size_t after_first = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<ReceivePool::Block> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(pool_->allocate(200'000).value());
    if (round == 0) after_first = engine_->registered.size();
    EXPECT_EQ(engine_->registered.size(), after_first) << "round " << round;
  }
}

TEST_F(ReceivePoolTest, TrimFreesUnusedSegments) {
  auto kept = pool_->allocate(1 << 20).value();
  {
    auto dropped = pool_->allocate(64 << 20).value();
  }
  EXPECT_GE(pool_->trim(), 64u << 20);
  EXPECT_EQ(pool_->counts().segments, 1u);
  EXPECT_EQ(engine_->regions(), 1u);
}

// KV caches: one object after another, each of another size, none kept.
TEST_F(ReceivePoolTest, ObjectsOfManySizesDoNotKeepASegmentEach) {
  for (const std::uint64_t mib : {20, 24, 28, 32, 36, 40, 22, 30}) {
    auto block = pool_->allocate(mib * kMiB).value();
    EXPECT_LE(pool_->counts().reserved_bytes, 48 * kMiB) << mib << " MiB";
  }
  const auto registered = engine_->registered.size();
  for (const std::uint64_t mib : {40, 20, 33}) auto block = pool_->allocate(mib * kMiB).value();
  EXPECT_EQ(engine_->registered.size(), registered) << "a segment that is large enough is kept";
}

TEST_F(ReceivePoolTest, ALimitIsAnErrorWithNumbers) {
  const auto small = ReceivePool::create(engine_, 16 << 20).value();
  const auto refused = small->allocate(32 << 20);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status(), Status::kResourceExhausted);
}

TEST_F(ReceivePoolTest, BlocksOutliveTheirPool) {
  auto block = std::make_unique<ReceivePool::Block>(pool_->allocate(1 << 20).value());
  pool_.reset();
  std::memset(block->address(), 1, block->nbytes());
  EXPECT_EQ(engine_->regions(), 1u);
  block.reset();
  EXPECT_EQ(engine_->regions(), 0u);
}

}  // namespace
}  // namespace onesided
