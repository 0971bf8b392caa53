#include "onesided/node/exchange/region_refs.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "onesided/node/exchange/fake_engine_port.h"

namespace onesided {
namespace {

constexpr std::uint64_t kBase = 0x10000;

TensorSpan span(std::uint64_t at, std::uint64_t nbytes, std::uint64_t whole_at, std::uint64_t whole_nbytes,
                MemoryId memory) {
  return {.bytes = {kBase + at, nbytes, MemType::kHost},
          .whole = {kBase + whole_at, whole_nbytes, MemType::kHost},
          .memory = memory};
}

TEST(RegionRefs, RegistersTheWholeMemoryOnceForAllItsViews) {
  FakeEnginePort engine;
  RegionRefs regions(engine);
  const auto a = regions.hold(span(0, 10, 0, 100, 1)).value();
  const auto b = regions.hold(span(50, 50, 0, 100, 1)).value();
  EXPECT_EQ(engine.registered, (std::vector<MemRange>{{kBase, 100, MemType::kHost}}));
  EXPECT_EQ(b.pieces, (std::vector<MemRange>{{kBase + 50, 50, MemType::kHost}}));
  regions.drop(a);
  regions.drop(b);
}

TEST(RegionRefs, TheHundredthUpdateRegistersNothing) {
  FakeEnginePort engine;
  RegionRefs regions(engine);
  for (int update = 0; update < 100; ++update) {
    std::vector<RegionRefs::Held> held;
    for (std::uint64_t i = 0; i < 200; ++i) held.push_back(regions.hold(span(i * 64, 64, i * 64, 64, i + 1)).value());
    for (const auto& one : held) regions.drop(one);
  }
  EXPECT_EQ(regions.counts().registrations, 200u);
  EXPECT_EQ(regions.counts().deregistrations, 0u);
}

TEST(RegionRefs, WithoutKeepingTheLastUserEndsIt) {
  FakeEnginePort engine;
  RegionRefs regions(engine, /*keep_idle=*/false);
  const auto a = regions.hold(span(0, 10, 0, 100, 1)).value();
  const auto b = regions.hold(span(0, 10, 0, 100, 1)).value();
  regions.drop(a);
  EXPECT_EQ(engine.regions(), 1u);
  regions.drop(b);
  EXPECT_EQ(engine.regions(), 0u);
}

TEST(RegionRefs, UnownedMemoryEndsWithItsLastUser) {
  FakeEnginePort engine;
  RegionRefs regions(engine);
  const auto held = regions.hold(span(0, 10, 0, 10, kUnowned)).value();
  regions.drop(held);
  EXPECT_EQ(engine.regions(), 0u);
}

// Ray's own transport used the address alone as the key of its cache: another tensor at the same address got the old
// entry.
TEST(RegionRefs, AnAddressUsedAgainIsANewRegistration) {
  FakeEnginePort engine;
  RegionRefs regions(engine);
  regions.drop(regions.hold(span(0, 100, 0, 100, 1)).value());
  regions.memory_freed(1);
  EXPECT_EQ(engine.regions(), 0u);
  const auto held = regions.hold(span(0, 40, 0, 40, 2)).value();
  EXPECT_EQ(engine.registered.back(), (MemRange{kBase, 40, MemType::kHost}));
  EXPECT_EQ(regions.counts().registrations, 2u);
  regions.drop(held);
}

TEST(RegionRefs, MemoryFreedWhileUsedIsDeregisteredImmediately) {
  FakeEnginePort engine;
  RegionRefs regions(engine);
  const auto held = regions.hold(span(0, 100, 0, 100, 1)).value();
  regions.memory_freed(1);
  EXPECT_EQ(engine.regions(), 0u);
  regions.drop(held);  // late, without effect
  EXPECT_EQ(regions.counts().regions, 0u);
}

// Two numpy slices of one buffer are two storages over the same bytes.
TEST(RegionRefs, OverlappingMemoriesShareRegionsUntilBothAreFreed) {
  FakeEnginePort engine;
  RegionRefs regions(engine);
  const auto a = regions.hold(span(0, 100, 0, 100, 1)).value();
  const auto b = regions.hold(span(50, 100, 50, 100, 2)).value();
  EXPECT_EQ(b.pieces, (std::vector<MemRange>{{kBase + 50, 50, MemType::kHost}, {kBase + 100, 50, MemType::kHost}}));
  regions.drop(a);
  regions.memory_freed(1);
  EXPECT_EQ(engine.regions(), 2u) << "the second memory still needs the first region";
  regions.drop(b);
  regions.memory_freed(2);
  EXPECT_EQ(engine.regions(), 0u);
}

TEST(RegionRefs, AMemoryAroundTwoRegisteredPiecesFillsTheGap) {
  FakeEnginePort engine;
  RegionRefs regions(engine);
  const auto a = regions.hold(span(10, 10, 10, 10, 1)).value();
  const auto b = regions.hold(span(40, 10, 40, 10, 2)).value();
  const auto c = regions.hold(span(0, 60, 0, 60, 3)).value();
  EXPECT_EQ(c.pieces.size(), 5u);
  std::uint64_t at = kBase;
  for (const MemRange& piece : c.pieces) {
    EXPECT_EQ(piece.address, at);
    at = piece.end();
  }
  EXPECT_EQ(at, kBase + 60);
  for (const auto& held : {a, b, c}) regions.drop(held);
}

TEST(RegionRefs, APoolsRegistrationIsUsedAndNotCounted) {
  FakeEnginePort engine;
  ASSERT_TRUE(engine.register_range({kBase, 1000, MemType::kHost}).ok());
  RegionRefs regions(engine);
  const auto held = regions.hold(span(100, 50, 100, 50, 1)).value();
  EXPECT_TRUE(held.regions.empty());
  EXPECT_EQ(held.pieces, (std::vector<MemRange>{{kBase + 100, 50, MemType::kHost}}));
  EXPECT_EQ(regions.counts().registrations, 0u);
}

TEST(RegionRefs, AMemoryPartlyRegisteredByOthersRegistersTheTensorAlone) {
  FakeEnginePort engine;
  ASSERT_TRUE(engine.register_range({kBase, 100, MemType::kHost}).ok());
  RegionRefs regions(engine);
  const auto held = regions.hold(span(200, 50, 50, 500, 1)).value();
  EXPECT_EQ(engine.registered.back(), (MemRange{kBase + 200, 50, MemType::kHost}));
  regions.drop(held);
}

TEST(RegionRefs, AFailureLeavesNothingBehind) {
  FakeEnginePort engine;
  engine.fail_register.insert(kBase + 60);
  RegionRefs regions(engine);
  const auto middle = regions.hold(span(50, 10, 50, 10, 9)).value();
  const auto failed = regions.hold(span(0, 100, 0, 100, 1));  // [0,50) works, [60,100) does not
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status(), Status::kResourceExhausted);
  EXPECT_EQ(engine.regions(), 1u);
  regions.drop(middle);
}

// Every thread holds and drops views of four overlapping memories; sometimes a memory is freed. After each step of a
// thread its own view is registered; at the end no registration is left.
TEST(RegionRefs, ManyThreadsShareAndFreeMemories) {
  FakeEnginePort engine;
  RegionRefs regions(engine);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (std::uint64_t step = 0; step < 2'000; ++step) {
        const std::uint64_t whole_at = 100 * (random() % 4), at = whole_at + random() % 100;
        const MemoryId memory = t * 10'000 + step + 1;
        auto held = regions.hold(span(at, 1 + random() % 50, whole_at, 150, memory));
        ASSERT_TRUE(held.ok()) << "seed " << t << " step " << step << ": " << held.error().to_string();
        for (const MemRange& piece : held->pieces)
          ASSERT_TRUE(engine.covers(piece)) << "seed " << t << " step " << step;
        regions.drop(*held);
        regions.memory_freed(memory);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine.regions(), 0u);
  EXPECT_EQ(regions.counts().regions, 0u);
  EXPECT_EQ(regions.counts().nbytes, 0u);
}

// A reader was suspended while the memory was freed: the addresses can be registered again later.
TEST(RegionRefs, ARegistrationThatCouldNotBeEndedIsEndedWhenItsAddressesAreUsedAgain) {
  FakeEnginePort engine;
  RegionRefs regions(engine);
  regions.drop(regions.hold(span(0, 100, 0, 100, 1)).value());
  engine.busy.insert(1);
  regions.memory_freed(1);
  EXPECT_EQ(engine.regions(), 1u) << "the engine still has it";
  EXPECT_FALSE(regions.hold(span(50, 100, 50, 100, 2)).ok()) << "the reader still uses it";
  engine.busy.clear();
  EXPECT_TRUE(regions.hold(span(50, 100, 50, 100, 3)).ok());
  EXPECT_EQ(engine.regions(), 1u);
}

}  // namespace
}  // namespace onesided
