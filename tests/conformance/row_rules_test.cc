// Items of rows at a fixed distance owe everything that contiguous items owe, over every transport.
#include <random>

#include "engine_pair.h"

namespace onesided::testing {
namespace {

class RowRules : public EnginePair {
 protected:
  Result<void> move_rows(Op op, const TransferItem& item, const RowShape& shape) {
    const std::vector<TransferItem> items{item};
    const std::vector<RowShape> rows{shape};
    TransferList list{items};
    list.rows = rows;
    return reader().transfer_sync(peer(), op, list, kTestMs);
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, RowRules, ::testing::Values("self", "shm", "cma", "tcp", "ascend"),
                         transport_name);

void copy_rows(std::uint8_t* to, std::uint64_t to_pitch, const std::uint8_t* from, std::uint64_t from_pitch,
               std::uint64_t row_bytes, std::uint64_t rows) {
  for (std::uint64_t r = 0; r < rows; ++r) std::memcpy(to + r * to_pitch, from + r * from_pitch, row_bytes);
}

TEST_P(RowRules, RandomShapesMoveTheirRowsAndNothingBeside) {
  constexpr std::uint64_t kBytes = 6 * kMiB, kSeed = 20;
  std::mt19937_64 random(kSeed);
  const auto any = [&](std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  };
  const auto theirs = memory(kBytes), mine = memory(kBytes);
  theirs->fill_pattern(1);
  add(owner(), *theirs);
  add(reader(), *mine);
  for (int round = 0; round < 40; ++round) {
    const std::uint64_t row_bytes = any(0, 3) == 0 ? any(1, 64) : any(1, 20'000);
    const std::uint64_t local_pitch = row_bytes + (any(0, 2) == 0 ? 0 : any(1, 9'000));
    const std::uint64_t remote_pitch = row_bytes + (any(0, 2) == 0 ? 0 : any(1, 9'000));
    const std::uint64_t most = (kBytes - 200) / std::max(local_pitch, remote_pitch);
    const std::uint64_t rows = any(1, std::min<std::uint64_t>(most, GetParam() == "ascend" ? 500 : 20'000));
    const std::uint64_t from = any(0, 100), to = any(0, 100);
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round << ": " << rows << " x " << row_bytes
                                      << ", " << local_pitch << " here, " << remote_pitch << " there");
    const TransferItem item{mine->address() + to, theirs->address() + from, rows * row_bytes};
    const RowShape shape{row_bytes, local_pitch, remote_pitch};
    mine->fill_pattern(100 + static_cast<std::uint64_t>(round));
    auto expected = mine->copy();
    copy_rows(expected.data() + to, local_pitch, theirs->data() + from, remote_pitch, row_bytes, rows);
    ASSERT_OK(move_rows(Op::kRead, item, shape));
    ASSERT_TRUE(expected == mine->copy());
    mine->fill_pattern(200 + static_cast<std::uint64_t>(round));
    expected = theirs->copy();
    copy_rows(expected.data() + from, remote_pitch, mine->data() + to, local_pitch, row_bytes, rows);
    ASSERT_OK(move_rows(Op::kWrite, item, shape));
    ASSERT_TRUE(expected == theirs->copy());
  }
}

TEST_P(RowRules, OneItemIsOneResult) {
  const auto theirs = memory(4 * kMiB), mine = memory(4 * kMiB);
  theirs->fill_pattern(3);
  add(owner(), *theirs);
  add(reader(), *mine);
  const std::vector<TransferItem> items{{mine->address(), theirs->address(), 2 * kMiB},
                                        {mine->address() + 3 * kMiB, theirs->address() + 3 * kMiB, 1000}};
  const std::vector<RowShape> rows{{4096, 4096, 8192 - 16}, {}};
  TransferList list{items};
  list.rows = rows;
  auto transfer = reader().transfer_async(peer(), Op::kRead, list, kTestMs);
  ASSERT_OK(transfer);
  ASSERT_OK((*transfer)->wait(Deadline::never()));
  EXPECT_EQ((*transfer)->status(), TransferStatus::kCompleted);
  EXPECT_EQ((*transfer)->bytes_done(), 2 * kMiB + 1000);
  const auto results = (*transfer)->items();
  ASSERT_EQ(results.size(), 2);
  EXPECT_EQ(results[0].bytes_done, 2 * kMiB);
  EXPECT_EQ(results[1].bytes_done, 1000);
}

TEST_P(RowRules, ShapesThatCannotBeMoveNothing) {
  const auto theirs = memory(kMiB), mine = memory(kMiB);
  theirs->fill_pattern(2);
  add(owner(), *theirs);
  add(reader(), *mine);
  constexpr std::uint64_t kMax = ~0ULL;
  struct Case {
    const char* what;
    std::uint64_t nbytes;
    RowShape shape;
  } cases[] = {
      {"rows that overlap here", 8192, {4096, 4095, 8192}},
      {"rows that overlap there", 8192, {4096, 8192, 1}},
      {"half a row", 8192 + 5, {4096, 8192, 8192}},
      {"a pitch without rows", 8192, {0, 8192, 8192}},
      {"the last row ends one byte past, there", kMiB / 2, {4096, 4096, 8192 + 33}},
      {"the last row ends one byte past, here", kMiB / 2, {4096, 8192 + 33, 4096}},
      {"a span that wraps", 8192, {4096, 4096, kMax - 4095}},
      {"an address that wraps", 8192, {4096, kMax - 8192, 4096}},
      {"a product that wraps", 4 * 4096, {4096, 4096, kMax / 3 + 2}},
      {"too many rows", kMaxRows + 1, {1, 1, 1}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    for (const Op op : {Op::kRead, Op::kWrite})
      EXPECT_STATUS(Status::kParamInvalid, move_rows(op, {mine->address(), theirs->address(), c.nbytes}, c.shape));
  }
  EXPECT_TRUE(mine->filled_with(0));
}

TEST_P(RowRules, RowsOfMemoryThatWasTakenBackAreStaleOrRefused) {
  const auto theirs = memory(2 * kMiB), mine = memory(2 * kMiB);
  const auto handle = add(owner(), *theirs);
  add(reader(), *mine);
  const RowShape shape{4096, 4096, 8192};
  const TransferItem item{mine->address(), theirs->address(), kMiB};
  ASSERT_OK(move_rows(Op::kRead, item, shape));
  ASSERT_OK(owner().deregister_mem(handle, kTestMs));
  std::memset(mine->data(), 7, mine->size());
  std::memset(theirs->data(), 9, theirs->size());
  const auto after = move_rows(Op::kRead, item, shape);
  EXPECT_TRUE(after.status() == Status::kStale || after.status() == Status::kParamInvalid);
  EXPECT_TRUE(mine->filled_with(7));
}

}  // namespace
}  // namespace onesided::testing
