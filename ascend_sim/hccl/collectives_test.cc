// Random collectives of all kinds and types among the ranks of one process, and what the library refuses.
#include <cstdlib>
#include <memory>
#include <thread>

#include "ascend_sim/hccl/cases.h"

namespace onesided::sim::hccl {
namespace {

std::uint64_t seed() {
  const char* text = std::getenv("ONESIDED_TEST_SEED");
  return text ? std::strtoull(text, nullptr, 10) : std::random_device{}();
}

constexpr auto kFp32 = static_cast<std::int32_t>(DataType::kFp32);

// The ranks of a communicator, each with a device and a stream of its own.
class RankGroup {
 public:
  explicit RankGroup(std::uint32_t ranks) : comms(ranks, nullptr), streams(ranks, nullptr) {
    std::vector<std::int32_t> devices;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      devices.push_back(static_cast<std::int32_t>(rank));
      enter(rank);
      EXPECT_EQ(aclrtCreateStream(&streams[rank]), 0);
    }
    EXPECT_EQ(HcclCommInitAll(ranks, devices.data(), comms.data()), 0) << aclGetRecentErrMsg();
  }
  ~RankGroup() {
    // As ranks do: each on its own, none waits for another.
    std::vector<std::thread> threads;
    for (void* comm : comms) threads.emplace_back([comm] { EXPECT_EQ(HcclCommDestroy(comm), 0); });
    for (std::thread& thread : threads) thread.join();
    for (std::uint32_t rank = 0; rank < comms.size(); ++rank) {
      enter(rank);
      EXPECT_EQ(aclrtDestroyStream(streams[rank]), 0);
    }
  }
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  static void enter(std::uint32_t rank) { EXPECT_EQ(aclrtSetDevice(static_cast<std::int32_t>(rank)), 0); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(comms.size()); }

  void run(const std::vector<Case>& cases) {
    std::vector<std::vector<std::unique_ptr<CaseOnRank>>> parts(size());
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      enter(rank);
      for (const Case& one : cases) {
        parts[rank].push_back(std::make_unique<CaseOnRank>(one, rank, size()));
        ASSERT_EQ(parts[rank].back()->issue(comms[rank], streams[rank]), 0) << one.text() << aclGetRecentErrMsg();
      }
    }
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      ASSERT_EQ(aclrtSynchronizeStream(streams[rank]), 0) << aclGetRecentErrMsg();
      for (const auto& part : parts[rank]) part->check();
    }
  }

  std::vector<void*> comms;
  std::vector<void*> streams;
};

class AnyNumberOfRanks : public testing::TestWithParam<std::uint32_t> {};

TEST_P(AnyNumberOfRanks, RandomCollectivesGiveWhatTheDefinitionsSay) {
  const std::uint64_t chosen = seed();
  SCOPED_TRACE("ONESIDED_TEST_SEED=" + std::to_string(chosen));
  std::mt19937_64 random(chosen + GetParam());
  RankGroup group(GetParam());
  // Several at once in the queue: what one leaves behind must not be in the way of the next.
  for (int round = 0; round < 12 && !HasFatalFailure(); ++round) {
    std::vector<Case> cases;
    for (int i = 0; i < 5; ++i) cases.push_back(Case::random(random, group.size(), 400'000));
    group.run(cases);
  }
}

TEST_P(AnyNumberOfRanks, EveryTypeAndReduction) {
  RankGroup group(GetParam());
  for (std::int32_t type = 0; type <= 11; ++type) {
    std::vector<Case> cases;
    for (std::int32_t op = 0; op < 4; ++op) {
      cases.push_back({CaseKind::kAllReduce, type, op, 0, 37, 5, op % 2 == 0});
      cases.push_back({CaseKind::kAllReduce, type, op, 0, 40'001, 6, op % 2 != 0});
      cases.push_back({CaseKind::kReduceScatter, type, op, 0, 20'003, 7, false});
    }
    group.run(cases);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AnyNumberOfRanks, testing::Values(1, 2, 3, 4, 5, 8));

TEST(Collectives, PartsOfACommunicator) {
  RankGroup whole(4);
  std::vector<void*> parts(4, nullptr);
  std::vector<std::thread> threads;
  std::uint32_t even[] = {0, 2}, odd[] = {3, 1};  // in any order
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      std::uint32_t* list = rank % 2 == 0 ? even : odd;
      const std::uint32_t place = list[0] == rank ? 0 : 1;
      EXPECT_EQ(HcclCreateSubCommConfig(&whole.comms[rank], 2, list, 17, place, nullptr, &parts[rank]), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint32_t rank = 9, size = 9;
  EXPECT_EQ(HcclGetRankId(parts[1], &rank), 0);
  EXPECT_EQ(HcclGetRankSize(parts[1], &size), 0);
  EXPECT_EQ(rank, 1u);
  EXPECT_EQ(size, 2u);
  char names[2][128];
  EXPECT_EQ(HcclGetCommName(parts[0], names[0]), 0);
  EXPECT_EQ(HcclGetCommName(parts[2], names[1]), 0);
  EXPECT_STREQ(names[0], names[1]);
  void* none = &none;
  EXPECT_EQ(HcclCreateSubCommConfig(&whole.comms[0], 2, nullptr, 18, 0, nullptr, &none), 0);
  EXPECT_EQ(none, nullptr);
  for (void* part : parts) EXPECT_EQ(HcclCommDestroy(part), 0);
}

TEST(Collectives, AGroupOfMessagesInAnyOrderDoesNotWaitForItself) {
  RankGroup group(2);
  const std::uint64_t count = 100'000;  // too large to be sent before it is received
  std::vector<DeviceBuffer> out, in;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    RankGroup::enter(rank);
    out.emplace_back(count * 4);
    in.emplace_back(count * 4);
    std::memset(out[rank].data(), static_cast<int>(rank) + 1, count * 4);
    ASSERT_EQ(HcclGroupStart(), 0);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(HcclSend(out[rank].data(), count, kFp32, 1 - rank, group.comms[rank], group.streams[rank]), 0);
      ASSERT_EQ(HcclRecv(in[rank].data(), count, kFp32, 1 - rank, group.comms[rank], group.streams[rank]), 0);
    }
    ASSERT_EQ(HcclGroupEnd(), 0);
  }
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(aclrtSynchronizeStream(group.streams[rank]), 0);
    EXPECT_EQ(std::memcmp(in[rank].data(), out[1 - rank].data(), count * 4), 0);
  }
  EXPECT_EQ(HcclGroupEnd(), kPara);
}

TEST(Collectives, WhatCannotBeDoneIsRefusedAtOnce) {
  RankGroup group(2);
  RankGroup::enter(0);
  DeviceBuffer memory(4096);
  void* comm = group.comms[0];
  void* stream = group.streams[0];
  std::vector<std::byte> host(4096);
  EXPECT_EQ(HcclAllReduce(host.data(), host.data(), 16, kFp32, 0, comm, stream), kPara);
  EXPECT_EQ(HcclAllReduce(memory.data(), memory.data(), 16, 13, 0, comm, stream), kPara);
  EXPECT_EQ(HcclAllReduce(memory.data(), memory.data(), 16, 12, 0, comm, stream), kNotSupport);
  EXPECT_EQ(HcclAllReduce(memory.data(), memory.data(), 16, kFp32, 9, comm, stream), kNotSupport);
  EXPECT_EQ(HcclAllReduce(memory.data(), memory.data() + 4, 16, kFp32, 0, comm, stream), kPara);
  EXPECT_EQ(HcclAllReduce(nullptr, memory.data(), 16, kFp32, 0, comm, stream), kPtr);
  EXPECT_EQ(HcclAllReduce(memory.data(), memory.data(), 16, kFp32, 0, nullptr, stream), kPtr);
  EXPECT_EQ(HcclAllReduce(memory.data(), memory.data(), 16, kFp32, 0, &group, stream), kPara);
  EXPECT_EQ(HcclBroadcast(memory.data(), 16, kFp32, 2, comm, stream), kPara);
  EXPECT_EQ(HcclSend(memory.data(), 16, kFp32, 2, comm, stream), kPara);
  EXPECT_EQ(HcclAllReduce(memory.data(), memory.data(), std::uint64_t{1} << 62, kFp32, 0, comm, stream), kPara);
  EXPECT_EQ(HcclCommSuspend(comm), 0);
  EXPECT_EQ(HcclBarrier(comm, stream), kSuspending);
  EXPECT_EQ(HcclCommResume(comm), 0);
  EXPECT_STREQ(HcclGetErrorString(kRemote), "HCCL_E_REMOTE");
  RootInfo foreign{};
  void* made = nullptr;
  EXPECT_EQ(HcclCommInitRootInfo(1, &foreign, 0, &made), kPara);
  EXPECT_EQ(HcclCommInitRootInfo(1, &foreign, 1, &made), kPara);
  group.run({{CaseKind::kAllReduce, kFp32, 0, 0, 100, 1, false}});  // and all of it left the ranks in step
}

}  // namespace
}  // namespace onesided::sim::hccl
