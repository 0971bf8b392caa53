#include "onesided/node/exchange/fetches.h"

#include <gtest/gtest.h>

#include <thread>

#include "onesided/node/exchange/fake_engine_port.h"
#include "onesided/node/exchange/tensor_store.h"

namespace onesided {
namespace {

class FetchesTest : public ::testing::Test {
 protected:
  // An object whose tensors have these pieces, and adjacent targets of the same sizes.
  FetchSpec spec(std::vector<std::vector<std::uint64_t>> tensors) {
    ObjectDesc object;
    FetchSpec spec{.object_id = "object", .engine_id = "owner:1"};
    std::uint64_t address = 0x100000;
    for (auto& pieces : tensors) {
      object.tensors.push_back({MemType::kHost, std::move(pieces)});
      const MemRange target{address, object.tensors.back().nbytes(), MemType::kHost};
      spec.targets.push_back({.bytes = target, .whole = target, .memory = kUnowned});
      address += target.nbytes + 64;
      if (target.nbytes > 0) object.regions = "regions";
    }
    spec.desc = object.encode();
    return spec;
  }

  FakeEnginePort engine_;
  RegionRefs regions_{engine_};
  PeerCache peers_{engine_, 10};
  Fetches fetches_{engine_, regions_, peers_};
};

TEST_F(FetchesTest, MovesEveryPieceAndThenHoldsNothing) {
  auto fetch = fetches_.start(spec({{100}, {}, {30, 70}})).value();
  EXPECT_EQ(engine_.last_items,
            (std::vector<ReadItem>{{0x100000, 0, 0, 100}, {0x100000 + 228, 1, 0, 30}, {0x100000 + 258, 2, 0, 70}}));
  EXPECT_EQ(fetch->wait(Deadline::never()), FetchState::kDone);
  EXPECT_EQ(fetch->nbytes(), 200u);
  EXPECT_EQ(engine_.regions(), 0u);
  EXPECT_EQ(fetch->wait(Deadline::never()), FetchState::kDone) << "the end is final";
}

TEST_F(FetchesTest, ATargetInTwoRegistrationsGetsItemsForEachPiece) {
  FetchSpec one = spec({{100}});
  const MemRange half{0x100000, 40, MemType::kHost};
  const auto held = regions_.hold({.bytes = half, .whole = half, .memory = 5}).value();
  auto fetch = fetches_.start(one).value();
  EXPECT_EQ(engine_.last_items, (std::vector<ReadItem>{{0x100000, 0, 0, 40}, {0x100000 + 40, 0, 40, 60}}));
  regions_.drop(held);
}

TEST_F(FetchesTest, AnObjectWithoutBytesNeedsNoPeer) {
  auto fetch = fetches_.start(spec({{}, {}})).value();
  EXPECT_EQ(fetch->wait(Deadline::after_ms(0)), FetchState::kDone);
  EXPECT_EQ(engine_.connects, 0);
}

TEST_F(FetchesTest, TargetsThatDoNotMatchAreRefusedFirst) {
  FetchSpec wrong = spec({{100}, {50}});
  wrong.targets[1].bytes.nbytes = 49;
  EXPECT_EQ(fetches_.start(wrong).status(), Status::kParamInvalid);
  wrong.targets.pop_back();
  EXPECT_EQ(fetches_.start(wrong).status(), Status::kParamInvalid);
  wrong.desc = "not ours";
  EXPECT_EQ(fetches_.start(wrong).status(), Status::kParamInvalid);
  EXPECT_EQ(engine_.connects, 0);
  EXPECT_EQ(engine_.regions(), 0u);
}

TEST_F(FetchesTest, AnUnreachableOwnerIsNamed) {
  engine_.unreachable.insert("owner:1");
  const auto failed = fetches_.start(spec({{100}}));
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().text().find("owner:1"), std::string::npos) << failed.error().text();
  EXPECT_EQ(engine_.regions(), 0u);
}

TEST_F(FetchesTest, AStaleConnectionIsRenewedOnce) {
  engine_.stale_reads = 1;
  EXPECT_EQ(fetches_.start(spec({{100}})).value()->wait(Deadline::never()), FetchState::kDone);
  EXPECT_EQ(engine_.connects, 2);
  engine_.stale_reads = 2;
  EXPECT_EQ(fetches_.start(spec({{100}})).status(), Status::kStale);
}

// T0: a long fetch over the connection | T1: a freed object of a running owner -> T2: the next fetch starts
// immediately.
TEST_F(FetchesTest, AStaleObjectDoesNotCloseTheConnection) {
  engine_.reads_finish = false;
  auto running = fetches_.start(spec({{100}})).value();
  engine_.same_life = true;
  engine_.stale_reads = 1;
  EXPECT_EQ(fetches_.start(spec({{200}})).status(), Status::kStale);
  auto next = fetches_.start(spec({{300}})).value();
  EXPECT_EQ(engine_.connects, 1);
  EXPECT_EQ(running->state(), FetchState::kRunning);
}

TEST_F(FetchesTest, TheOldConnectionsErrorIsReportedIfReconnectFails) {
  EXPECT_TRUE(fetches_.start(spec({{100}})).ok());
  engine_.stale_reads = 1;
  engine_.unreachable.insert("owner:1");
  EXPECT_EQ(fetches_.start(spec({{100}})).status(), Status::kStale);
}

TEST_F(FetchesTest, ALostConnectionIsRenewed) {
  EXPECT_TRUE(fetches_.start(spec({{100}})).ok());
  engine_.lose("owner:1");
  EXPECT_EQ(fetches_.start(spec({{100}})).value()->wait(Deadline::never()), FetchState::kDone);
  EXPECT_EQ(engine_.connects, 2);
}

TEST_F(FetchesTest, TheCallersDeadlineDoesNotEndIt) {
  engine_.reads_finish = false;
  auto fetch = fetches_.start(spec({{100}})).value();
  EXPECT_EQ(fetch->wait(Deadline::after_ms(1)), FetchState::kRunning);
  EXPECT_EQ(engine_.regions(), 1u);
  engine_.readings.at(0)->finish({});
  EXPECT_EQ(fetch->wait(Deadline::never()), FetchState::kDone);
}

TEST_F(FetchesTest, AFailureKeepsItsCauseAndDropsTheConnection) {
  engine_.reads_finish = false;
  auto fetch = fetches_.start(spec({{100}})).value();
  engine_.readings.at(0)->finish(Error{Status::kPeerLost, "the owner's process ended"});
  EXPECT_EQ(fetch->wait(Deadline::never()), FetchState::kFailed);
  EXPECT_EQ(fetch->error().value().status(), Status::kPeerLost);
  engine_.reads_finish = true;
  EXPECT_TRUE(fetches_.start(spec({{100}})).ok());
  EXPECT_EQ(engine_.connects, 2);
}

// T0: wait() | T1: abort(object) -> T0 gets kAborted, and no byte can be written into the targets when abort() returns.
TEST_F(FetchesTest, AbortWakesTheWaiter) {
  engine_.reads_finish = false;
  auto fetch = fetches_.start(spec({{100}})).value();
  std::thread waiter([&] { EXPECT_EQ(fetch->wait(Deadline::never()), FetchState::kAborted); });
  EXPECT_EQ(fetches_.abort("object"), 1u);
  EXPECT_EQ(fetch->state(), FetchState::kAborted);
  EXPECT_EQ(engine_.regions(), 0u);
  waiter.join();
}

// T0: start() connects | T1: abort(object) -> no byte moves, and T0 posts nothing when it is connected.
TEST_F(FetchesTest, AbortEndsAConnectingFetch) {
  engine_.slow.insert("owner:1");
  std::thread starter([&] { EXPECT_EQ(fetches_.start(spec({{100}})).status(), Status::kCancelled); });
  engine_.wait_for_connect();
  EXPECT_EQ(fetches_.abort("object"), 1u);
  engine_.quicken();
  starter.join();
  EXPECT_TRUE(engine_.readings.empty());
  EXPECT_EQ(engine_.regions(), 0u);
}

TEST_F(FetchesTest, AbortEndsRunningFetchesOnly) {
  EXPECT_EQ(fetches_.abort("object"), 0u);
  auto done = fetches_.start(spec({{100}})).value();
  EXPECT_EQ(done->wait(Deadline::never()), FetchState::kDone);
  EXPECT_EQ(fetches_.abort("object"), 0u);
  EXPECT_EQ(done->state(), FetchState::kDone);
  EXPECT_EQ(fetches_.start(spec({{100}})).value()->wait(Deadline::never()), FetchState::kDone)
      << "an earlier abort does not affect later fetches";
}

TEST_F(FetchesTest, ADroppedRequestStopsAndReleasesEverything) {
  engine_.reads_finish = false;
  auto fetch = fetches_.start(spec({{100}})).value();
  EXPECT_EQ(engine_.regions(), 1u);
  fetch.reset();
  EXPECT_EQ(engine_.regions(), 0u);
  EXPECT_EQ(peers_.counts().peers, 1u) << "the connection is kept for the next fetch";
}

}  // namespace
}  // namespace onesided
