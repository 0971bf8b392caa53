// Rules 1, 2 and 4: freed memory is never read, and no peer writes into memory that its owner has deregistered.
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "engine_pair.h"

namespace onesided::testing {
namespace {

class RegionRules : public EnginePair {};
INSTANTIATE_TEST_SUITE_P(Transports, RegionRules, ::testing::Values("self", "shm", "cma", "tcp", "ascend"),
                         transport_name);

// Where the other side is another engine.
class PeerRules : public EnginePair {};
INSTANTIATE_TEST_SUITE_P(Transports, PeerRules, ::testing::Values("shm", "cma", "tcp", "ascend"), transport_name);

TEST_P(RegionRules, RegisteredAfterConnectIsUsableAtOnceAndDeregisteredIsRefusedAtOnce) {
  const auto mine = memory(4096);
  add(reader(), *mine);
  for (std::uint64_t round = 1; round <= 50; ++round) {
    const auto theirs = memory(4096);
    theirs->fill_pattern(round);
    const auto handle = add(owner(), *theirs);
    ASSERT_OK(move(Op::kRead, {{mine->address(), theirs->address(), 4096}}));
    ASSERT_EQ(theirs->copy(), mine->copy());
    ASSERT_OK(owner().deregister_mem(handle, kTestMs));
    // Over tcp the owner may be the one who refuses it.
    const auto refused = move(Op::kRead, {{mine->address(), theirs->address(), 4096}});
    EXPECT_TRUE(refused.status() == Status::kParamInvalid || refused.status() == Status::kStale)
        << status_name(refused.status());
    EXPECT_STATUS(Status::kNotFound, owner().deregister_mem(handle, kTestMs));
  }
}

TEST_P(RegionRules, SameRangeIsCountedAndOverlapsAreRefused) {
  const auto theirs = memory(4 * kMiB), mine = memory(kMiB);
  add(reader(), *mine);
  const auto first = owner().register_mem(theirs->address(), kMiB, MemType::kHost);
  const auto again = owner().register_mem(theirs->address(), kMiB, MemType::kHost);
  ASSERT_OK(first);
  ASSERT_OK(again);
  EXPECT_EQ(*first, *again);
  for (const auto& [offset, nbytes] :
       {std::pair<std::uint64_t, std::uint64_t>{0, kMiB - 1}, {1, kMiB}, {kMiB / 2, kMiB}, {0, 2 * kMiB}})
    EXPECT_STATUS(Status::kParamInvalid, owner().register_mem(theirs->address() + offset, nbytes, MemType::kHost));
  EXPECT_OK(owner().register_mem(theirs->address() + kMiB, kMiB, MemType::kHost));  // adjacent
  EXPECT_OK(owner().deregister_mem(*first, kTestMs));
  EXPECT_OK(move(Op::kRead, {{mine->address(), theirs->address(), kMiB}}));
  EXPECT_OK(owner().deregister_mem(*again, kTestMs));
  EXPECT_STATUS(Status::kParamInvalid, move(Op::kRead, {{mine->address(), theirs->address(), kMiB}}));
  EXPECT_STATUS(Status::kNotFound, owner().deregister_mem(*again, kTestMs));
  // Its place in the table is used again, its handle is not.
  const auto reborn = owner().register_mem(theirs->address(), kMiB, MemType::kHost);
  ASSERT_OK(reborn);
  EXPECT_NE(*first, *reborn);
  EXPECT_STATUS(Status::kNotFound, owner().deregister_mem(*first, kTestMs));
}

TEST_P(RegionRules, DescriptorsAreBoundToARegistration) {
  const auto theirs = memory(kMiB), mine = memory(kMiB);
  add(reader(), *mine);
  const auto handle = add(owner(), *theirs);
  const std::pair<std::uint64_t, std::uint64_t> range[] = {{theirs->address(), kMiB}};
  const auto blob = owner().describe(range);
  ASSERT_OK(blob);
  const auto regions = reader().import_desc(*blob);
  ASSERT_OK(regions);
  BoundItems bound;
  ASSERT_OK(regions->bind({mine->address(), 0, 0, kMiB}, bound));
  EXPECT_OK(reader().transfer_sync(peer(), Op::kRead, bound.list(), kTestMs));
  ASSERT_OK(owner().deregister_mem(handle, kTestMs));
  EXPECT_STATUS(Status::kStale, reader().transfer_sync(peer(), Op::kRead, bound.list(), kTestMs));
  add(owner(), *theirs);  // the same range, but not the same registration
  EXPECT_STATUS(Status::kStale, reader().transfer_sync(peer(), Op::kRead, bound.list(), kTestMs));
  const auto transfer = reader().transfer_async(peer(), Op::kWrite, bound.list(), kTestMs);
  ASSERT_OK(transfer);
  EXPECT_EQ(TransferStatus::kFailed, (*transfer)->status());
  EXPECT_EQ(Status::kStale, (*transfer)->error()->status());
}

TEST_P(RegionRules, ReadOnlyMemoryCanBeReadAndIsNeverWritten) {
  const auto theirs = memory(kMiB), mine = memory(kMiB);
  theirs->fill_pattern(1);
  const auto before = theirs->copy();
  ASSERT_EQ(0, ::mprotect(theirs->data(), theirs->size(), PROT_READ));
  add(owner(), *theirs);
  add(reader(), *mine);
  EXPECT_OK(move(Op::kRead, {{mine->address(), theirs->address(), kMiB}}));
  EXPECT_EQ(before, mine->copy());
  std::memset(mine->data(), 0, mine->size());
  // Over shm peers have a mapping of their own; what the vendor's engine says is its own matter.
  if (GetParam() != "shm" && GetParam() != "ascend") {
    for (const std::uint64_t nbytes : {std::uint64_t{100}, kMiB})
      EXPECT_FALSE(move(Op::kWrite, {{mine->address(), theirs->address(), nbytes}}).ok());
    EXPECT_EQ(before, theirs->copy());
  }
  // As the local side of a READ.
  const auto fixed = memory(kMiB);
  ASSERT_EQ(0, ::mprotect(fixed->data(), fixed->size(), PROT_READ));
  add(reader(), *fixed);
  for (const std::uint64_t nbytes : {std::uint64_t{100}, kMiB})
    EXPECT_STATUS(Status::kUnsupported, move(Op::kRead, {{fixed->address(), theirs->address(), nbytes}}));
  EXPECT_OK(move(Op::kRead, {{mine->address(), theirs->address(), kMiB}}));
  for (const auto* memory : {theirs.get(), fixed.get()})
    ASSERT_EQ(0, ::mprotect(memory->data(), memory->size(), PROT_READ | PROT_WRITE));
}

TEST_P(PeerRules, APeerRestartedOnTheSameAddressIsNotTheSamePeer) {
  const auto theirs = memory(kMiB), mine = memory(kMiB);
  add(reader(), *mine);
  theirs->fill_pattern(5);
  add(owner(), *theirs);
  const std::string id = peer();
  const std::pair<std::uint64_t, std::uint64_t> range[] = {{theirs->address(), kMiB}};
  const auto regions = reader().import_desc(*owner().describe(range));
  BoundItems bound;
  ASSERT_OK(regions->bind({mine->address(), 0, 0, kMiB}, bound));
  owner_.reset();
  owner_ = open(GetParam(), {}, id);
  ASSERT_EQ(id, peer());
  theirs->fill_pattern(6);
  add(owner(), *theirs);
  // The connection is to the one that is gone.
  EXPECT_FALSE(move(Op::kRead, {{mine->address(), theirs->address(), kMiB}}).ok());
  EXPECT_TRUE(mine->filled_with(0));
  ASSERT_OK(reader().connect(id, kTestMs));
  EXPECT_STATUS(Status::kStale, reader().transfer_sync(id, Op::kRead, bound.list(), kTestMs));
  EXPECT_TRUE(mine->filled_with(0));
  EXPECT_OK(move(Op::kRead, {{mine->address(), theirs->address(), kMiB}}));
  EXPECT_EQ(theirs->copy(), mine->copy());
}

// T0: READ, READ, READ ...              | a READ that succeeds saw only bytes from before
// T1:       deregister | fill with 2    |
TEST_P(RegionRules, AReadNeverSucceedsWithBytesFromAfterTheDeregistration) {
  const auto theirs = memory(3 * kMiB), mine = memory(3 * kMiB);
  add(reader(), *mine);
  for (int round = 0; round < 20; ++round) {
    std::memset(theirs->data(), 1, theirs->size());
    const auto handle = add(owner(), *theirs);
    std::atomic<int> reads{0};
    std::thread taker([&] {
      while (reads.load() < 3) std::this_thread::yield();
      EXPECT_OK(owner().deregister_mem(handle, kTestMs));
      std::memset(theirs->data(), 2, theirs->size());
    });
    while (true) {
      const auto read = move(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}});
      if (!read.ok()) {
        EXPECT_TRUE(read.status() == Status::kStale || read.status() == Status::kParamInvalid) << read.error().text();
        break;
      }
      EXPECT_TRUE(mine->filled_with(1));
      ++reads;
    }
    taker.join();
  }
}

// T0: WRITE, WRITE, WRITE ...                  |
// T1:       deregister returns | fill with 2   | stays 2
TEST_P(RegionRules, NobodyWritesIntoMemoryThatWasTakenBack) {
  const auto theirs = memory(3 * kMiB), mine = memory(3 * kMiB);
  std::memset(mine->data(), 1, mine->size());
  add(reader(), *mine);
  for (int round = 0; round < 20; ++round) {
    const auto handle = add(owner(), *theirs);
    std::atomic<int> writes{0};
    std::thread taker([&] {
      while (writes.load() < 3) std::this_thread::yield();
      EXPECT_OK(owner().deregister_mem(handle, kTestMs));
      std::memset(theirs->data(), 2, theirs->size());
    });
    while (move(Op::kWrite, {{mine->address(), theirs->address(), theirs->size()}}).ok()) ++writes;
    taker.join();
    EXPECT_TRUE(theirs->filled_with(2));
  }
}

// T0: READ into mine ............ ends          |
// T1:       deregister(mine) waits for it | mine is quiet
TEST_P(RegionRules, DeregisteringALocalBufferWaitsForItsTransfers) {
  const auto theirs = memory(64 * kMiB), mine = memory(64 * kMiB);
  std::memset(theirs->data(), 1, theirs->size());
  add(owner(), *theirs);
  for (int round = 0; round < 5; ++round) {
    const auto handle = add(reader(), *mine);
    const auto transfer = begin(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}});
    const auto removed = reader().deregister_mem(handle, 1);
    if (!removed.ok()) {
      EXPECT_STATUS(Status::kBusy, removed);
      EXPECT_STATUS(Status::kParamInvalid, move(Op::kRead, {{mine->address(), theirs->address(), 16}}));
      EXPECT_STATUS(Status::kBusy, reader().register_mem(mine->address(), mine->size(), MemType::kHost));
      ASSERT_OK(reader().deregister_mem(handle, kTestMs));
    }
    EXPECT_NE(TransferStatus::kWaiting, [&] {
      (void)transfer->wait(Deadline::never());
      return transfer->status();
    }());
    std::memset(mine->data(), 2, mine->size());
    EXPECT_TRUE(mine->filled_with(2));
  }
}

TEST_P(PeerRules, DisconnectEndsTransfersAndNothingMovesAfterwards) {
  const auto theirs = memory(64 * kMiB), mine = memory(64 * kMiB);
  std::memset(theirs->data(), 1, theirs->size());
  add(owner(), *theirs);
  add(reader(), *mine);
  const auto transfer = begin(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}});
  ASSERT_OK(reader().disconnect(peer()));
  std::memset(mine->data(), 2, mine->size());
  ASSERT_OK(transfer->wait(Deadline::after_ms(kTestMs)));
  if (transfer->status() == TransferStatus::kFailed) {
    EXPECT_EQ(Status::kCancelled, transfer->error()->status());
  }
  EXPECT_TRUE(mine->filled_with(2));
  EXPECT_STATUS(Status::kNotConnected, move(Op::kRead, {{mine->address(), theirs->address(), 16}}));
  ASSERT_OK(reader().connect(peer(), kTestMs));
  EXPECT_OK(move(Op::kRead, {{mine->address(), theirs->address(), 16}}));
}

TEST_P(PeerRules, ClosingTheOwnerFailsTheReader) {
  const auto theirs = memory(64 * kMiB), mine = memory(64 * kMiB);
  add(owner(), *theirs);
  add(reader(), *mine);
  const auto transfer = begin(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}});
  const std::string id = peer();
  owner().close();
  ASSERT_OK(transfer->wait(Deadline::after_ms(kTestMs)));
  const auto later = reader().transfer_sync(
      id, Op::kRead, TransferList{std::vector<TransferItem>{{mine->address(), theirs->address(), 16}}}, kTestMs);
  EXPECT_FALSE(later.ok());
  EXPECT_STATUS(Status::kClosed, owner().register_mem(theirs->address(), theirs->size(), MemType::kHost));
  EXPECT_STATUS(Status::kClosed, owner().connect(reader().id(), kTestMs));
  owner().close();
}

}  // namespace
}  // namespace onesided::testing
