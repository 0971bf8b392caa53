#include "onesided/node/exchange/peer_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "onesided/node/exchange/fake_engine_port.h"

namespace onesided {
namespace {

Deadline soon() { return Deadline::after_ms(20); }

TEST(PeerCache, ReusesAConnection) {
  FakeEnginePort engine;
  PeerCache peers(engine, 10);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(peers.pin("a:1", 0, Deadline::never()).ok());
  EXPECT_EQ(engine.connects, 1);
  EXPECT_EQ(peers.counts().reuses, 2u);
}

TEST(PeerCache, EvictsTheLeastRecentlyUsed) {
  FakeEnginePort engine;
  PeerCache peers(engine, 2);
  for (const char* remote : {"a:1", "b:1", "a:1", "c:1"}) EXPECT_TRUE(peers.pin(remote, 0, Deadline::never()).ok());
  EXPECT_EQ(engine.disconnected, std::vector<std::string>{"b:1"});
}

TEST(PeerCache, NeverEvictsAPeerInUse) {
  FakeEnginePort engine;
  PeerCache peers(engine, 1);
  auto a = peers.pin("a:1", 0, Deadline::never()).value();
  auto b = peers.pin("b:1", 0, Deadline::never()).value();
  EXPECT_EQ(peers.counts().peers, 2u) << "both in use: over the limit temporarily";
  EXPECT_TRUE(engine.disconnected.empty());
  a.release();
  EXPECT_EQ(engine.disconnected, std::vector<std::string>{"a:1"});
  b.release();
  EXPECT_EQ(peers.counts().peers, 1u);
}

TEST(PeerCache, SizeZeroConnectsAndDisconnectsEachTime) {
  FakeEnginePort engine;
  PeerCache peers(engine, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(peers.pin("a:1", 0, Deadline::never()).ok());
  EXPECT_EQ(engine.connects, 3);
  EXPECT_EQ(engine.disconnected.size(), 3u);
  EXPECT_EQ(peers.counts().peers, 0u);
}

TEST(PeerCache, AFailedConnectLeavesNoEntry) {
  FakeEnginePort engine;
  engine.unreachable.insert("a:1");
  PeerCache peers(engine, 10);
  EXPECT_EQ(peers.pin("a:1", 0, Deadline::never()).status(), Status::kNotConnected);
  engine.unreachable.clear();
  EXPECT_TRUE(peers.pin("a:1", 0, Deadline::never()).ok());
}

TEST(PeerCache, AHigherVersionReconnectsOnlyWhereTheEngineNeedsIt) {
  FakeEnginePort engine;
  PeerCache modern(engine, 10);
  EXPECT_TRUE(modern.pin("a:1", 1, Deadline::never()).ok());
  EXPECT_TRUE(modern.pin("a:1", 7, Deadline::never()).ok());
  EXPECT_EQ(engine.connects, 1);

  FakeEnginePort vendor;
  vendor.dynamic = false;
  PeerCache peers(vendor, 10);
  EXPECT_TRUE(peers.pin("a:1", 3, Deadline::never()).ok());
  EXPECT_TRUE(peers.pin("a:1", 2, Deadline::never()).ok()) << "older metadata needs no new connection";
  EXPECT_EQ(vendor.connects, 1);
  EXPECT_TRUE(peers.pin("a:1", 4, Deadline::never()).ok());
  EXPECT_TRUE(peers.pin("a:1", 3, Deadline::never()).ok()) << "old and new metadata do not cause repeated reconnects";
  EXPECT_EQ(vendor.connects, 2);
}

// T0: fetches over version 1 | T1: needs version 2 -> must wait for T0, then reconnect.
TEST(PeerCache, ARenewalWaitsForRunningFetches) {
  FakeEnginePort engine;
  engine.dynamic = false;
  PeerCache peers(engine, 10);
  auto old = peers.pin("a:1", 1, Deadline::never()).value();
  EXPECT_EQ(peers.pin("a:1", 2, soon()).status(), Status::kTimeout);
  std::thread later([&] { EXPECT_TRUE(peers.pin("a:1", 2, Deadline::never()).ok()); });
  old.release();
  later.join();
  EXPECT_EQ(engine.connects, 2);
}

TEST(PeerCache, ABrokenConnectionIsRenewed) {
  FakeEnginePort engine;
  PeerCache peers(engine, 10);
  EXPECT_TRUE(peers.pin("a:1", 0, Deadline::never()).ok());
  peers.mark_broken("a:1");
  EXPECT_TRUE(peers.pin("a:1", 0, Deadline::never()).ok());
  EXPECT_EQ(engine.connects, 2);
}

TEST(PeerCache, ManyThreadsShareFewConnections) {
  FakeEnginePort engine;
  PeerCache peers(engine, 2);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int step = 0; step < 2'000; ++step) {
        const std::string remote = "peer:" + std::to_string(random() % 4);
        auto pin = peers.pin(remote, 0, Deadline::never());
        ASSERT_TRUE(pin.ok());
        ASSERT_TRUE(engine.connected(remote)) << "seed " << t << " step " << step;
        if (random() % 16 == 0) peers.mark_broken(remote);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(peers.counts().peers, 2u);
  EXPECT_EQ(peers.counts().connects - peers.counts().disconnects, peers.counts().peers);
}

}  // namespace
}  // namespace onesided
