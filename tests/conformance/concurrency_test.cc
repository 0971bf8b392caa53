// Rule 9: any call from any thread. Run under ThreadSanitizer as well; the counts are chosen for that.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "engine_pair.h"

namespace onesided::testing {
namespace {

class Concurrency : public EnginePair {};
INSTANTIATE_TEST_SUITE_P(Transports, Concurrency, ::testing::Values("shm", "cma", "tcp"), transport_name);

constexpr int kThreads = 8;

void in_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
  for (auto& thread : threads) thread.join();
}

TEST_P(Concurrency, ConnectingAtOnceMakesOneConnection) {
  for (int round = 0; round < 5; ++round) {
    ASSERT_OK(reader().disconnect(peer()));
    std::atomic<int> connected{0}, already{0};
    in_threads([&](int) {
      const auto result = reader().connect(peer(), kTestMs);
      if (result.ok()) ++connected;
      if (result.status() == Status::kAlreadyConnected) ++already;
    });
    EXPECT_EQ(1, connected.load());
    EXPECT_EQ(kThreads - 1, already.load());
    const auto mine = memory(64), theirs = memory(64);
    const auto local = add(reader(), *mine), remote = add(owner(), *theirs);
    EXPECT_OK(move(Op::kRead, {{mine->address(), theirs->address(), 64}}));
    EXPECT_EQ(1U, owner().stats()->guests);
    EXPECT_OK(reader().deregister_mem(local, kTestMs));
    EXPECT_OK(owner().deregister_mem(remote, kTestMs));
  }
}

// Everything that a thread may find while others connect, disconnect and deregister.
bool expected_beside_others(Status status) {
  constexpr std::array kExpected = {
      Status::kSuccess,      Status::kNotConnected, Status::kAlreadyConnected, Status::kCancelled,    Status::kPeerLost,
      Status::kParamInvalid, Status::kStale,        Status::kTimeout,          Status::kNotifyFailed, Status::kClosed};
  return std::find(kExpected.begin(), kExpected.end(), status) != kExpected.end();
}

TEST_P(Concurrency, EverybodyDoesEverything) {
  const auto theirs = memory(kMiB);
  std::memset(theirs->data(), 7, theirs->size());
  add(owner(), *theirs);
  in_threads([&](int thread) {
    std::mt19937 random(thread);
    const auto mine = memory(kMiB), more = memory(4096);
    const auto handle = add(reader(), *mine);
    for (int i = 0; i < 120; ++i) {
      const std::uint64_t nbytes = 1 + random() % kMiB;
      const std::vector<TransferItem> items = {{mine->address(), theirs->address(), nbytes}};
      Status status = Status::kSuccess;
      switch (random() % 12) {
        case 0: {
          const auto extra = owner().register_mem(more->address(), more->size(), MemType::kHost);
          ASSERT_OK(extra);
          status = move(Op::kWrite, {{mine->address(), more->address(), 4096}}).status();
          ASSERT_OK(owner().deregister_mem(*extra, kTestMs));
          break;
        }
        case 1: status = reader().send_notify(peer(), "thread", std::to_string(thread), kTestMs).status(); break;
        case 2: (void)owner().get_notifies(); break;
        case 3: ASSERT_OK(reader().stats()); break;
        case 4:
          if (random() % 4 == 0) status = reader().disconnect(peer()).status();
          break;
        case 5: status = reader().connect(peer(), kTestMs).status(); break;
        case 6: {
          const auto transfer = reader().transfer_async(peer(), Op::kRead, TransferList{items}, kTestMs);
          status = transfer.status();
          if (transfer.ok()) (*transfer)->cancel();
          break;
        }
        case 7: {
          const auto transfer = reader().transfer_async(peer(), Op::kRead, TransferList{items}, kTestMs);
          status = transfer.status();
          if (!transfer.ok()) break;
          ASSERT_OK((*transfer)->wait(Deadline::after_ms(kTestMs)));
          status = (*transfer)->error() ? (*transfer)->error()->status() : Status::kSuccess;
          break;
        }
        default:
          std::memset(mine->data(), 0, nbytes);
          status = move(Op::kRead, items).status();
          if (status == Status::kSuccess) {
            EXPECT_EQ(7, mine->data()[nbytes - 1]);
          }
      }
      ASSERT_TRUE(expected_beside_others(status)) << status_name(status);
    }
    ASSERT_OK(reader().deregister_mem(handle, kTestMs));
  });
  (void)reader().connect(peer(), kTestMs);
  const auto mine = memory(16);
  add(reader(), *mine);
  EXPECT_OK(move(Op::kRead, {{mine->address(), theirs->address(), 16}}));
  EXPECT_EQ(0U, reader().stats()->outstanding);
}

TEST_P(Concurrency, OneRequestPolledByMany) {
  const auto theirs = memory(32 * kMiB), mine = memory(32 * kMiB);
  add(owner(), *theirs);
  add(reader(), *mine);
  const auto transfer = begin(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}});
  in_threads([&](int thread) {
    TransferStatus last = TransferStatus::kWaiting;
    while (last == TransferStatus::kWaiting)
      last = thread % 2 ? transfer->status() : *transfer->wait(Deadline::never());
    for (int i = 0; i < 100; ++i) EXPECT_EQ(TransferStatus::kCompleted, transfer->status());
    EXPECT_EQ(theirs->size(), transfer->bytes_done());
  });
}

TEST_P(Concurrency, FailuresLeaveNothingBehind) {
  constexpr int kTransfers = 2000;
  constexpr std::uint64_t kSmall = 64;
  const auto theirs = memory(512 * kKiB), mine = memory(512 * kKiB), slots = memory(kTransfers * kSmall);
  const auto local = add(reader(), *mine), local_slots = add(reader(), *slots);
  add(owner(), *theirs);
  std::vector<std::shared_ptr<Transfer>> unwaited;
  for (int i = 0; i < kTransfers; ++i) {
    if (i % 10 == 1) {
      EXPECT_STATUS(Status::kParamInvalid, move(Op::kRead, {{mine->address(), theirs->address() + 1, theirs->size()}}));
    } else if (i % 10 == 2) {
      begin(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}})->cancel();
    } else if (i % 50 == 0) {
      ASSERT_OK(
          begin(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}})->wait(Deadline::after_ms(kTestMs)));
    } else {
      // Each has separate target bytes, because transfers that are not waited for run concurrently.
      const auto transfer = begin(Op::kRead, {{slots->address() + i * kSmall, theirs->address(), kSmall}});
      if (i % 3 == 0)
        ASSERT_OK(transfer->wait(Deadline::after_ms(kTestMs)));
      else
        unwaited.push_back(transfer);
    }
  }
  EXPECT_OK(reader().deregister_mem(local, kTestMs));
  EXPECT_OK(reader().deregister_mem(local_slots, kTestMs));  // nothing moves any more: the rest ends by itself
  for (const auto& transfer : unwaited) ASSERT_OK(transfer->wait(Deadline::after_ms(kTestMs)));
  const auto stats = reader().stats();
  EXPECT_EQ(0U, stats->outstanding);
  for (const auto& [id, peer_stats] : stats->peers) EXPECT_EQ(0U, peer_stats.transfers) << id;
}

TEST_P(Concurrency, PlacesForTransfersAreWaitedFor) {
  const auto narrow = open(GetParam(), {{"max_outstanding", "2"}});
  ASSERT_OK(narrow->connect(peer(), kTestMs));
  const auto theirs = memory(2 * kMiB), mine = memory(2 * kMiB);
  add(owner(), *theirs);
  add(*narrow, *mine);
  const TransferItem item{mine->address(), theirs->address(), theirs->size()};
  std::vector<std::shared_ptr<Transfer>> transfers;
  for (int i = 0; i < 20; ++i) {
    auto transfer = narrow->transfer_async(peer(), Op::kRead, TransferList{{&item, 1}}, kTestMs);
    ASSERT_OK(transfer);
    transfers.push_back(*transfer);
    EXPECT_LE(narrow->stats()->outstanding, 2U);
  }
  for (const auto& transfer : transfers)
    EXPECT_EQ(TransferStatus::kCompleted, *transfer->wait(Deadline::after_ms(kTestMs)));
}

TEST_P(Concurrency, ClosingWhileOthersTransferIsClean) {
  const auto theirs = memory(4 * kMiB), mine = memory(4 * kMiB);
  add(owner(), *theirs);
  add(reader(), *mine);
  std::atomic<int> begun{0};
  std::thread closer([&] {
    while (begun.load() < 2 * kThreads) std::this_thread::yield();
    reader().close();
  });
  in_threads([&](int thread) {
    const std::uint64_t share = theirs->size() / kThreads, offset = thread * share;
    for (Status status = Status::kSuccess; status == Status::kSuccess; ++begun)
      status = move(Op::kRead, {{mine->address() + offset, theirs->address() + offset, share}}).status();
  });
  closer.join();
  std::memset(mine->data(), 3, mine->size());
  EXPECT_TRUE(mine->filled_with(3));
}

}  // namespace
}  // namespace onesided::testing
