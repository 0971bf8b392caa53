#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onesided/transport/tcp/tcp_fixture.h"

namespace onesided::tcp::testing {
namespace {

TEST_F(TcpTransportTest, MovesEverySizeBothWaysByteForByteWithinItsBounds) {
  constexpr std::size_t kGuard = 64;
  for (const std::size_t nbytes : {1ul, 3ul, 511ul, 4096ul, 4097ul, 65535ul, (1ul << 20) + 1, (5ul << 20) + 7}) {
    auto remote = pattern(nbytes + 2 * kGuard, nbytes);
    const auto original = remote;
    std::vector<std::uint8_t> local(nbytes + 2 * kGuard, 0xee);
    const auto key = memory.add(remote.data() + kGuard, nbytes);
    auto sink = post(Op::kRead, {move(local.data() + kGuard, remote.data() + kGuard, nbytes, key)});
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->rest(), std::nullopt);
    EXPECT_EQ(sink->moved_[0], nbytes);
    EXPECT_TRUE(std::equal(local.begin() + kGuard, local.end() - kGuard, remote.begin() + kGuard));
    EXPECT_TRUE(all_are(std::span(local).first(kGuard), 0xee));
    EXPECT_TRUE(all_are(std::span(local).last(kGuard), 0xee));

    auto source = pattern(nbytes, nbytes + 1);
    sink = post(Op::kWrite, {move(source.data(), remote.data() + kGuard, nbytes, key)});
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->moved_[0], nbytes);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), remote.begin() + kGuard));
    EXPECT_TRUE(std::equal(remote.begin(), remote.begin() + kGuard, original.begin()));
    EXPECT_TRUE(std::equal(remote.end() - kGuard, remote.end(), original.end() - kGuard));
  }
}

TEST_F(TcpTransportTest, ManySmallItemsInOneBatch) {
  constexpr std::size_t kItems = 20'000;
  auto remote = pattern(kItems * 48, 5);
  std::vector<std::uint8_t> local(kItems * 48);
  const auto key = memory.add(remote.data(), remote.size());
  std::vector<Move> moves;
  std::vector<std::size_t> order(kItems);
  for (std::size_t i = 0; i < kItems; ++i) order[i] = i;
  std::mt19937 random(9);
  std::ranges::shuffle(order, random);
  for (const auto i : order) moves.push_back(move(local.data() + i * 48, remote.data() + i * 48, 1 + i % 48, key));
  for (const auto op : {Op::kRead, Op::kWrite}) {
    auto sink = post(op, moves);
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->rest(), std::nullopt);
    for (std::size_t k = 0; k < kItems; ++k) {
      ASSERT_EQ(sink->moved_[k], moves[k].nbytes);
      ASSERT_EQ(std::memcmp(local.data() + order[k] * 48, remote.data() + order[k] * 48, moves[k].nbytes), 0);
    }
    const auto other = pattern(kItems * 48, 6);
    std::ranges::copy(other, local.begin());
  }
}

TEST_F(TcpTransportTest, ItemsThatAreRefusedFailAloneAndMoveNothing) {
  auto remote = pattern(4 << 20, 1);
  const auto untouched = remote;
  std::vector<std::uint8_t> local(4 << 20, 0xee);
  const auto good = memory.add(remote.data(), 2 << 20);
  const auto gone = memory.add(remote.data() + (3 << 20), 4096);
  ASSERT_TRUE(memory.drop(gone));
  std::vector<Move> moves = {
      move(local.data(), remote.data(), 1 << 20, good),
      move(local.data() + (1 << 20), remote.data() + (2 << 20) - 100, 101, good),  // one byte past the end
      move(local.data() + (2 << 20), remote.data() + (3 << 20), 4096, gone),
      move(local.data() + (3 << 20), remote.data() + (1 << 20), 4096, good),
  };
  auto sink = post(Op::kRead, moves);
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->rest(), std::nullopt);
  EXPECT_EQ(sink->failed_.at(1).status(), Status::kParamInvalid);
  EXPECT_EQ(sink->failed_.at(2).status(), Status::kStale);
  EXPECT_EQ(sink->failed_.size(), 2u);
  EXPECT_EQ(sink->moved_[0], 1u << 20);
  EXPECT_EQ(sink->moved_[1] + sink->moved_[2], 0u);
  EXPECT_EQ(sink->moved_[3], 4096u);
  EXPECT_EQ(std::memcmp(local.data(), remote.data(), 1 << 20), 0);
  EXPECT_EQ(std::memcmp(local.data() + (3 << 20), remote.data() + (1 << 20), 4096), 0);
  EXPECT_TRUE(all_are(std::span(local).subspan(1 << 20, 1 << 20), 0xee));
  EXPECT_TRUE(all_are(std::span(local).subspan(2 << 20, 1 << 20), 0xee));

  moves.erase(moves.begin());
  moves.pop_back();
  sink = post(Op::kWrite, moves);
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->failed_.size(), 2u);
  EXPECT_EQ(remote, untouched);
}

TEST_F(TcpTransportTest, MemoryTheHostCannotTouchGoesThroughItsDevice) {
  constexpr std::size_t kBytes = (2 << 20) + 333;
  FarDevice far(kBytes), near(kBytes);
  far.bytes = pattern(kBytes, 3);
  auto* base = reinterpret_cast<void*>(FarDevice::kBase);
  const auto key = memory.add(base, kBytes, &far);
  auto both = move(base, base, kBytes, key);
  both.device = &near;
  auto sink = post(Op::kRead, {both});
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->moved_[0], kBytes);
  EXPECT_EQ(near.bytes, far.bytes);

  near.bytes = pattern(kBytes, 4);
  sink = post(Op::kWrite, {both});
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->moved_[0], kBytes);
  EXPECT_EQ(near.bytes, far.bytes);

  near.broken = true;
  for (const auto op : {Op::kRead, Op::kWrite}) {
    sink = post(op, {both});
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->failed_.at(0).status(), Status::kFailed);
  }
  near.broken = false;
  far.broken = true;
  for (const auto op : {Op::kRead, Op::kWrite}) {
    sink = post(op, {both});
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->failed_.at(0).status(), Status::kFailed);
  }
}

// Each waiting thread receives its own replies and those between them.
TEST_F(TcpTransportTest, WaitingThreadsReceiveForThemselvesAndForOthers) {
  constexpr int kThreads = 4, kRounds = 100;
  constexpr std::size_t kShare = 256 << 10;
  auto remote = pattern(kThreads * kShare, 5);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  std::atomic<int> helped{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < kRounds; ++round) {
        const std::size_t nbytes = round % 10 == 0 ? kShare : 4096, place = thread * kShare;
        std::fill_n(local.begin() + static_cast<std::ptrdiff_t>(place), nbytes, 0);
        auto sink = std::make_shared<RecordingSink>(1);
        auto batch = std::make_shared<Batch>();
        batch->op = Op::kRead;
        batch->moves = {move(local.data() + place, remote.data() + place, nbytes, key)};
        batch->sink = sink;
        link->post(batch);
        while (link->help(*batch)) ++helped;
        ASSERT_TRUE(sink->wait());
        ASSERT_EQ(std::memcmp(local.data() + place, remote.data() + place, nbytes), 0);
        ASSERT_FALSE(link->help(*batch));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (std::thread::hardware_concurrency() > 1) {
    EXPECT_GT(helped, 0);
  }
}

TEST_F(TcpTransportTest, ManyConcurrentThreadsAndBatches) {
  build({.streams = 3, .threads = 2, .congestion = ""});
  auto remote = pattern(8 << 20, 2);
  const auto key = memory.add(remote.data(), remote.size());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<std::uint8_t> local(2 << 20);
      for (int round = 0; round < 50; ++round) {
        const std::size_t nbytes = 1 + random() % (round % 5 == 0 ? local.size() : 8192);
        const std::size_t at = random() % (remote.size() - nbytes);
        auto sink = std::make_shared<RecordingSink>(1);
        auto batch = std::make_shared<Batch>();
        batch->moves = {move(local.data(), remote.data() + at, nbytes, key)};
        batch->deadline = Deadline::after_ms(kTestMs);
        batch->sink = sink;
        link->post(batch);
        if (!sink->wait() || std::memcmp(local.data(), remote.data() + at, nbytes) != 0) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(TcpOptions, AreHonouredOrRefused) {
  FakeMemory memory;
  EXPECT_EQ(make_tcp_transport({.streams = 0, .threads = 1, .congestion = ""}, memory).status(), Status::kParamInvalid);
  EXPECT_EQ(make_tcp_transport({.streams = 65, .threads = 1, .congestion = ""}, memory).status(),
            Status::kParamInvalid);
  const auto bad = make_tcp_transport({.streams = 1, .threads = 1, .congestion = "no-such"}, memory);
  EXPECT_EQ(bad.status(), Status::kParamInvalid);
  EXPECT_THAT(bad.error().text(), ::testing::HasSubstr("no-such"));
  EXPECT_EQ(*tcp_congestion_in_use("reno"), "reno");
}

}  // namespace
}  // namespace onesided::tcp::testing
