// Prepared lists: what was checked once moves by index, and is STALE once its memory is not registered any more.
#include <algorithm>
#include <numeric>
#include <random>

#include "engine_pair.h"

namespace onesided::testing {
namespace {

constexpr std::uint64_t kBlock = 4096;
constexpr std::uint64_t kBlocks = 256;

class PreparedRules : public EnginePair {
 protected:
  void SetUp() override {
    EnginePair::SetUp();
    source_ = memory(kBlock * kBlocks);
    target_ = memory(kBlock * kBlocks);
    source_->fill_pattern(7);
    source_handle_ = add(owner(), *source_);
    target_handle_ = add(reader(), *target_);
  }
  static std::vector<PreparedList::Address> blocks(const GuardedMemory& memory) {
    std::vector<PreparedList::Address> ranges;
    for (std::uint64_t i = 0; i < kBlocks; ++i) ranges.emplace_back(memory.address() + i * kBlock, kBlock);
    return ranges;
  }
  std::shared_ptr<const PreparedList> local() {
    auto list = reader().prepare_local(blocks(*target_));
    ONESIDED_CHECK(list.ok(), "{}", list.error().to_string());
    return *list;
  }
  std::shared_ptr<const PreparedList> remote() {
    auto list = reader().prepare_remote(peer(), blocks(*source_), kTestMs);
    ONESIDED_CHECK(list.ok(), "{}", list.error().to_string());
    return *list;
  }
  template <typename Integer>
  Result<std::shared_ptr<Transfer>> begin(Op op, const PreparedList& ours, const std::vector<Integer>& our_indices,
                                          const PreparedList& theirs, const std::vector<Integer>& their_indices) {
    return reader().transfer(op, ours, std::span<const Integer>(our_indices), theirs,
                             std::span<const Integer>(their_indices), kTestMs);
  }
  static TransferStatus end(const Result<std::shared_ptr<Transfer>>& transfer) {
    ONESIDED_CHECK(transfer.ok(), "{}", transfer.error().to_string());
    return *(*transfer)->wait(Deadline::after_ms(kTestMs));
  }
  bool same(std::uint64_t target, std::uint64_t source) const {
    return std::memcmp(target_->data() + target * kBlock, source_->data() + source * kBlock, kBlock) == 0;
  }

  std::unique_ptr<GuardedMemory> source_, target_;
  MemHandle source_handle_, target_handle_;
};

TEST_P(PreparedRules, ScatteredBlocksArriveWhereTheIndicesSay) {
  const auto ours = local(), theirs = remote();
  std::vector<std::int32_t> from(kBlocks), to(kBlocks);
  std::iota(from.begin(), from.end(), 0);
  to = from;
  const unsigned seed = 11;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::shuffle(from.begin() + kBlocks / 2, from.end(), random);  // half of them neighbours, half scattered
  ASSERT_EQ(end(begin(Op::kRead, *ours, to, *theirs, from)), TransferStatus::kCompleted);
  for (std::uint64_t i = 0; i < kBlocks; ++i) ASSERT_TRUE(same(i, static_cast<std::uint64_t>(from[i]))) << i;
}

TEST_P(PreparedRules, WritesGoTheOtherWay) {
  const auto ours = local(), theirs = remote();
  target_->fill_pattern(9);
  const std::vector<std::uint64_t> our_blocks{5, 6, 200}, their_blocks{250, 3, 4};
  const auto before = source_->copy();
  ASSERT_EQ(end(begin(Op::kWrite, *ours, our_blocks, *theirs, their_blocks)), TransferStatus::kCompleted);
  for (std::size_t i = 0; i < our_blocks.size(); ++i) EXPECT_TRUE(same(our_blocks[i], their_blocks[i])) << i;
  EXPECT_EQ(std::memcmp(before.data(), source_->data(), 3 * kBlock), 0) << "blocks that no index names";
}

TEST_P(PreparedRules, EachItemHasItsResult) {
  const auto ours = local(), theirs = remote();
  const std::vector<std::uint32_t> blocks{0, 1, 2, 9};
  const auto transfer = begin(Op::kRead, *ours, blocks, *theirs, blocks);
  ASSERT_EQ(end(transfer), TransferStatus::kCompleted);
  const auto items = (*transfer)->items();
  ASSERT_EQ(items.size(), blocks.size());
  for (const auto& item : items) EXPECT_EQ(item.bytes_done, kBlock);
}

TEST_P(PreparedRules, WrongIndicesMoveNothing) {
  const auto ours = local(), theirs = remote();
  using Numbers = std::vector<std::int64_t>;
  EXPECT_STATUS(Status::kParamInvalid, begin(Op::kRead, *ours, Numbers{0, kBlocks}, *theirs, Numbers{0, 1}));
  EXPECT_STATUS(Status::kParamInvalid, begin(Op::kRead, *ours, Numbers{0, 1}, *theirs, Numbers{0, -1}));
  EXPECT_STATUS(Status::kParamInvalid, begin(Op::kRead, *ours, Numbers{0, 1}, *theirs, Numbers{0}));
  EXPECT_STATUS(Status::kParamInvalid, begin(Op::kRead, *ours, Numbers{}, *theirs, Numbers{}));
  EXPECT_STATUS(Status::kParamInvalid, begin(Op::kRead, *theirs, Numbers{0}, *ours, Numbers{0}));
  EXPECT_TRUE(target_->filled_with(0));
}

TEST_P(PreparedRules, LengthsThatDifferAreRefusedByName) {
  const std::vector<PreparedList::Address> longer{{source_->address(), 2 * kBlock}};
  const auto theirs = reader().prepare_remote(peer(), longer, kTestMs);
  ASSERT_OK(theirs);
  const auto refused =
      begin(Op::kRead, *local(), std::vector<std::uint32_t>{3}, **theirs, std::vector<std::uint32_t>{0});
  EXPECT_STATUS(Status::kParamInvalid, refused);
  EXPECT_NE(refused.error().text().find("local range 3 has 4096 bytes"), std::string::npos) << refused.error().text();
  EXPECT_TRUE(target_->filled_with(0));
}

TEST_P(PreparedRules, UnregisteredRangesAreNotPrepared) {
  const auto outside = memory(kBlock);
  const std::vector<PreparedList::Address> unknown{{outside->address(), kBlock}};
  const std::vector<PreparedList::Address> past{{source_->address() + (kBlocks - 1) * kBlock, 2 * kBlock}};
  EXPECT_STATUS(Status::kParamInvalid, reader().prepare_local(unknown));
  EXPECT_STATUS(Status::kParamInvalid, reader().prepare_remote(peer(), unknown, kTestMs));
  EXPECT_STATUS(Status::kParamInvalid, reader().prepare_remote(peer(), past, kTestMs));
  EXPECT_STATUS(Status::kParamInvalid, reader().prepare_local({}));
}

TEST_P(PreparedRules, StaleOnceTheOwnerHasDeregistered) {
  const auto ours = local(), theirs = remote();
  const std::vector<std::uint32_t> blocks{1, 2};
  ASSERT_OK(owner().deregister_mem(source_handle_, kTestMs));
  const auto refused = begin(Op::kRead, *ours, blocks, *theirs, blocks);
  EXPECT_EQ(end(refused), TransferStatus::kFailed);
  EXPECT_STATUS(Status::kStale, Result<void>(*(*refused)->error()));
  // The same memory again is another registration.
  source_handle_ = add(owner(), *source_);
  EXPECT_EQ(end(begin(Op::kRead, *ours, blocks, *theirs, blocks)), TransferStatus::kFailed);
  EXPECT_TRUE(target_->filled_with(0));
  EXPECT_EQ(end(begin(Op::kRead, *ours, blocks, *remote(), blocks)), TransferStatus::kCompleted);
}

TEST_P(PreparedRules, StaleOnceOurOwnMemoryIsDeregistered) {
  const auto ours = local(), theirs = remote();
  const std::vector<std::uint32_t> blocks{1, 2};
  ASSERT_OK(reader().deregister_mem(target_handle_, kTestMs));
  target_handle_ = add(reader(), *target_);
  const auto refused = begin(Op::kRead, *ours, blocks, *theirs, blocks);
  EXPECT_EQ(end(refused), TransferStatus::kFailed);
  EXPECT_STATUS(Status::kStale, Result<void>(*(*refused)->error()));
  EXPECT_TRUE(target_->filled_with(0));
}

TEST_P(PreparedRules, BoundToWhatWasDescribed) {
  const auto ranges = blocks(*source_);
  const std::vector<PreparedList::Address> whole{{source_->address(), source_->size()}};
  const auto blob = owner().describe(whole);
  ASSERT_OK(blob);
  const auto described = reader().import_desc(*blob);
  ASSERT_OK(described);
  const auto theirs = reader().prepare_remote(*described, ranges);
  ASSERT_OK(theirs);
  const std::vector<std::uint32_t> blocks{8, 7};
  EXPECT_EQ(end(begin(Op::kRead, *local(), blocks, **theirs, blocks)), TransferStatus::kCompleted);
  EXPECT_TRUE(same(8, 8) && same(7, 7));
  const std::vector<PreparedList::Address> outside{{source_->address() + source_->size(), kBlock}};
  EXPECT_STATUS(Status::kParamInvalid, reader().prepare_remote(*described, outside));
}

INSTANTIATE_TEST_SUITE_P(Transports, PreparedRules, ::testing::Values("self", "shm", "cma", "tcp"), transport_name);

}  // namespace
}  // namespace onesided::testing
