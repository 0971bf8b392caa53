// What every transport owes to every transfer: right bytes, nothing beside them, every address checked.
#include <algorithm>
#include <numeric>
#include <random>

#include "engine_pair.h"

namespace onesided::testing {
namespace {

class TransferRules : public EnginePair {};
INSTANTIATE_TEST_SUITE_P(Transports, TransferRules, ::testing::Values("self", "shm", "cma", "tcp", "ascend"),
                         transport_name);

TEST_P(TransferRules, AnySizeAtAnyOffset) {
  const std::uint64_t sizes[] = {1, 3, 511, 512, 513, 4095, 4096, 4097, 65'535, kMiB + 1, 9 * kMiB + 7};
  const auto theirs = memory(10 * kMiB), mine = memory(10 * kMiB);
  theirs->fill_pattern(1);
  const auto original = theirs->copy();
  add(owner(), *theirs);
  add(reader(), *mine);
  for (const auto nbytes : sizes) {
    for (const std::uint64_t from : {0, 1, 63, 4095}) {
      for (const std::uint64_t to : {0, 5, 4096}) {
        std::memset(mine->data(), 0, mine->size());
        ASSERT_OK(move(Op::kRead, {{mine->address() + to, theirs->address() + from, nbytes}}));
        ASSERT_EQ(0, std::memcmp(mine->data() + to, original.data() + from, nbytes))
            << nbytes << " " << from << " " << to;
        ASSERT_TRUE(to == 0 || mine->data()[to - 1] == 0);
        ASSERT_EQ(0, mine->data()[to + nbytes]);
      }
    }
    std::memset(theirs->data(), 0, theirs->size());
    std::memcpy(mine->data(), original.data(), original.size());
    ASSERT_OK(move(Op::kWrite, {{mine->address() + 7, theirs->address() + 9, nbytes}}));
    ASSERT_EQ(0, std::memcmp(theirs->data() + 9, original.data() + 7, nbytes));
    ASSERT_EQ(0, theirs->data()[8] + theirs->data()[9 + nbytes]);
    std::memcpy(theirs->data(), original.data(), original.size());
  }
}

TEST_P(TransferRules, OneByteOutOfRangeMovesNothing) {
  const auto theirs = memory(3 * kMiB), mine = memory(3 * kMiB), stranger = memory(kMiB);
  theirs->fill_pattern(2);
  ASSERT_OK(owner().register_mem(theirs->address() + kMiB, kMiB, MemType::kHost));
  ASSERT_OK(owner().register_mem(theirs->address() + 2 * kMiB, kMiB / 2, MemType::kHost));
  add(reader(), *mine);
  const auto before = theirs->copy();
  const std::uint64_t base = theirs->address();
  struct Case {
    const char* what;
    std::uint64_t remote, nbytes, local;
  } cases[] = {
      {"ends one byte past", base + 2 * kMiB + 1, kMiB / 2, mine->address()},
      {"starts one byte before", base + kMiB - 1, kMiB, mine->address()},
      {"covers two adjacent regions", base + kMiB + 1, kMiB, mine->address()},
      {"remote wholly unregistered", base, 16, mine->address()},
      {"remote is not registered", stranger->address(), 16, mine->address()},
      {"local unregistered", base + kMiB, 16, stranger->address()},
      {"local ends one byte past", base + kMiB, kMiB, mine->address() + 2 * kMiB + 1},
      {"remote wraps", ~0ULL - 7, 16, mine->address()},
      {"local wraps", base + kMiB, 16, ~0ULL - 7},
      {"remote null", 0, 16, mine->address()},
      {"no bytes", base + kMiB, 0, mine->address()},
  };
  for (const auto& c : cases) {
    if (GetParam() == "self" && c.remote == stranger->address()) continue;
    SCOPED_TRACE(c.what);
    for (const Op op : {Op::kRead, Op::kWrite}) {
      // Alone, and behind an item that is fine: then that one must not move either.
      EXPECT_STATUS(Status::kParamInvalid, move(op, {{c.local, c.remote, c.nbytes}}));
      EXPECT_STATUS(Status::kParamInvalid,
                    move(op, {{mine->address(), base + kMiB, 64}, {c.local, c.remote, c.nbytes}}));
    }
  }
  EXPECT_STATUS(Status::kParamInvalid, move(Op::kRead, {}));
  EXPECT_STATUS(Status::kParamInvalid, move(Op::kRead, {{mine->address(), base + kMiB, 64}}, 0));
  EXPECT_TRUE(mine->filled_with(0));
  EXPECT_EQ(before, theirs->copy());
  EXPECT_OK(move(Op::kRead, {{mine->address(), base + kMiB, kMiB}}));
}

TEST_P(TransferRules, ManyShuffledItems) {
  constexpr std::uint64_t kItems = 100'000, kBytes = 256;
  const auto theirs = memory(kItems * kBytes), mine = memory(kItems * kBytes);
  theirs->fill_pattern(3);
  add(owner(), *theirs);
  add(reader(), *mine);
  std::vector<TransferItem> items(kItems);
  for (std::uint64_t i = 0; i < kItems; ++i)
    items[i] = {mine->address() + i * kBytes, theirs->address() + i * kBytes, kBytes};
  for (const bool shuffled : {false, true}) {
    if (shuffled) std::shuffle(items.begin(), items.end(), std::mt19937(7));
    std::memset(mine->data(), 0, mine->size());
    const auto transfer = begin(Op::kRead, items, kTestMs);
    ASSERT_OK(transfer->wait(Deadline::never()));
    ASSERT_EQ(transfer->status(), TransferStatus::kCompleted) << transfer->error()->text();
    EXPECT_EQ(theirs->copy(), mine->copy());
    EXPECT_EQ(transfer->bytes_done(), kItems * kBytes);
    const auto results = transfer->items();
    EXPECT_TRUE(std::all_of(results.begin(), results.end(), [](const ItemResult& item) {
      return item.status == Status::kSuccess && item.bytes_done == kBytes;
    }));
  }
}

TEST_P(TransferRules, ManyRegionsInOneBatch) {
  std::vector<std::unique_ptr<GuardedMemory>> theirs;
  const auto mine = memory(64 * 1000);
  add(reader(), *mine);
  std::vector<TransferItem> items;
  for (std::uint64_t i = 0; i < 64; ++i) {
    theirs.push_back(memory(1000));
    theirs.back()->fill_pattern(i);
    add(owner(), *theirs.back());
  }
  for (std::uint64_t i = 0; i < 64; ++i)
    items.push_back({mine->address() + i * 1000, theirs[i * 37 % 64]->address(), 1000});
  ASSERT_OK(move(Op::kRead, items));
  for (std::uint64_t i = 0; i < 64; ++i)
    EXPECT_EQ(0, std::memcmp(mine->data() + i * 1000, theirs[i * 37 % 64]->data(), 1000));
  mine->fill_pattern(99);
  ASSERT_OK(move(Op::kWrite, items));
  for (std::uint64_t i = 0; i < 64; ++i)
    EXPECT_EQ(0, std::memcmp(mine->data() + i * 1000, theirs[i * 37 % 64]->data(), 1000));
}

TEST_P(TransferRules, ParallelTransfersAreFairAndExact) {
  constexpr int kTransfers = 12;
  const auto theirs = memory(24 * kMiB), mine = memory(24 * kMiB);
  theirs->fill_pattern(4);
  add(owner(), *theirs);
  add(reader(), *mine);
  std::vector<std::shared_ptr<Transfer>> transfers;
  for (std::uint64_t i = 0; i < kTransfers; ++i)
    transfers.push_back(
        begin(Op::kRead, {{mine->address() + i * 2 * kMiB, theirs->address() + i * 2 * kMiB, 2 * kMiB}}));
  for (const auto& transfer : transfers) {
    ASSERT_OK(transfer->wait(Deadline::after_ms(kTestMs)));
    EXPECT_EQ(TransferStatus::kCompleted, transfer->status());
  }
  EXPECT_EQ(theirs->copy(), mine->copy());
}

TEST_P(TransferRules, WaitOfTheCallerEndsAndTheTransferGoesOn) {
  const auto theirs = memory(64 * kMiB), mine = memory(64 * kMiB);
  add(owner(), *theirs);
  add(reader(), *mine);
  const auto transfer = begin(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}});
  const auto early = transfer->wait(Deadline::after_ms(std::int64_t{0}));
  if (!early.ok()) EXPECT_STATUS(Status::kTimeout, early);
  ASSERT_OK(transfer->wait(Deadline::never()));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(TransferStatus::kCompleted, transfer->status());
}

TEST_P(TransferRules, DeadlineEndsTheTransferAndNothingMovesAfterwards) {
  const auto theirs = memory(256 * kMiB), mine = memory(256 * kMiB);
  std::memset(theirs->data(), 1, theirs->size());
  add(owner(), *theirs);
  add(reader(), *mine);
  const auto transfer = begin(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}}, 1);
  ASSERT_OK(transfer->wait(Deadline::after_ms(kTestMs)));
  std::memset(mine->data(), 7, mine->size());
  if (transfer->status() == TransferStatus::kTimeout) {
    EXPECT_EQ(Status::kTimeout, transfer->error()->status());
    EXPECT_LT(transfer->bytes_done(), theirs->size());
  }
  EXPECT_STATUS(Status::kTimeout, move(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}}, 1));
  std::memset(mine->data(), 7, mine->size());
  EXPECT_TRUE(mine->filled_with(7));
}

TEST_P(TransferRules, CancelledTransfersLeaveTheBufferAlone) {
  const auto theirs = memory(256 * kMiB), mine = memory(256 * kMiB);
  std::memset(theirs->data(), 1, theirs->size());
  add(owner(), *theirs);
  const auto handle = add(reader(), *mine);
  for (int round = 0; round < 3; ++round) {
    const auto transfer = begin(Op::kRead, {{mine->address(), theirs->address(), theirs->size()}});
    transfer->cancel();
    EXPECT_NE(TransferStatus::kWaiting, transfer->status());
    std::memset(mine->data(), 9, mine->size());
    if (transfer->status() == TransferStatus::kFailed) {
      EXPECT_EQ(Status::kCancelled, transfer->error()->status());
      EXPECT_EQ(Status::kCancelled, transfer->items()[0].status);
    }
    transfer->cancel();
  }
  EXPECT_OK(reader().deregister_mem(handle, kTestMs));
  EXPECT_TRUE(mine->filled_with(9));
}

}  // namespace
}  // namespace onesided::testing
