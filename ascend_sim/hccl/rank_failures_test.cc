// Ranks in processes of their own: random collectives; ranks that die, disagree, or do not come.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>

#include "ascend_sim/hccl/cases.h"

namespace onesided::sim::hccl {
namespace {

constexpr auto kFp32 = static_cast<std::int32_t>(DataType::kFp32);

// What the processes of a test share.
struct Shared {
  std::atomic<std::uint32_t> root_ready;
  std::atomic<std::uint32_t> arrived;
  RootInfo root;
};

void wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t least) {
  while (word.load() < least) ::usleep(500);
}

// Failures of a child become its exit status.
int status_of(const std::function<void()>& body) {
  body();
  return testing::Test::HasFailure() ? 1 : 0;
}

// Runs body(rank) in a process each, none of which this one has used the runtime before. Exit statuses; 0 is good, and
// what a test expects of a rank that kills itself is its signal plus 128.
std::vector<int> in_processes(std::uint32_t ranks, const std::function<void(std::uint32_t, Shared&)>& body) {
  auto* shared =
      static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(status_of([&] { body(rank, *shared); }));
    children.push_back(child);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    statuses.push_back(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
  ::munmap(shared, sizeof(Shared));
  return statuses;
}

// This process's rank.
struct Rank {
  Rank(std::uint32_t rank, std::uint32_t ranks, Shared& shared) {
    EXPECT_EQ(aclrtSetDevice(static_cast<std::int32_t>(rank % 8)), 0) << aclGetRecentErrMsg();
    EXPECT_EQ(aclrtCreateStream(&stream), 0);
    if (rank == 0) {
      EXPECT_EQ(HcclGetRootInfo(&shared.root), 0) << aclGetRecentErrMsg();
      shared.root_ready = 1;
    }
    wait_for(shared.root_ready, 1);
    EXPECT_EQ(HcclCommInitRootInfo(ranks, &shared.root, rank, &comm), 0) << aclGetRecentErrMsg();
  }
  int async_error() const {
    std::int32_t code = -1;
    EXPECT_EQ(HcclGetCommAsyncError(comm, &code), 0);
    return code;
  }
  void* comm = nullptr;
  void* stream = nullptr;
};

using Statuses = std::vector<int>;

TEST(Ranks, RandomCollectivesAcrossProcesses) {
  const char* text = std::getenv("ONESIDED_TEST_SEED");
  const std::uint64_t seed = text ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("ONESIDED_TEST_SEED=" + std::to_string(seed));
  for (const std::uint32_t ranks : {2U, 3U}) {
    const auto statuses = in_processes(ranks, [&](std::uint32_t rank, Shared& shared) {
      Rank self(rank, ranks, shared);
      std::mt19937_64 random(seed);
      for (int round = 0; round < 10 && !HasFatalFailure(); ++round) {
        std::vector<std::unique_ptr<CaseOnRank>> cases;
        for (int i = 0; i < 6; ++i) {
          cases.push_back(std::make_unique<CaseOnRank>(Case::random(random, ranks, 600'000), rank, ranks));
          ASSERT_EQ(cases.back()->issue(self.comm, self.stream), 0) << aclGetRecentErrMsg();
        }
        ASSERT_EQ(aclrtSynchronizeStream(self.stream), 0) << aclGetRecentErrMsg();
        for (const auto& one : cases) one->check();
      }
      EXPECT_EQ(HcclCommDestroy(self.comm), 0);
    });
    EXPECT_EQ(statuses, Statuses(ranks, 0));
  }
}

TEST(Ranks, AKilledRankIsAnErrorOfTheOthers) {
  for (const std::uint64_t count : {100ULL, 1'000'000ULL}) {
    const auto statuses = in_processes(3, [&](std::uint32_t rank, Shared& shared) {
      Rank self(rank, 3, shared);
      DeviceBuffer data(count * 4);
      if (rank == 2) ::kill(::getpid(), SIGKILL);
      ASSERT_EQ(HcclAllReduce(data.data(), data.data(), count, kFp32, 0, self.comm, self.stream), 0);
      EXPECT_NE(aclrtSynchronizeStream(self.stream), 0);
      EXPECT_EQ(self.async_error(), kRemote);
      EXPECT_EQ(HcclBarrier(self.comm, self.stream), kRemote);
      EXPECT_EQ(HcclCommDestroy(self.comm), 0);
    });
    EXPECT_EQ(statuses, (Statuses{0, 0, 128 + SIGKILL}));
  }
}

TEST(Ranks, ARankThatLeavesIsAnErrorOfTheOthers) {
  const auto statuses = in_processes(2, [](std::uint32_t rank, Shared& shared) {
    Rank self(rank, 2, shared);
    if (rank == 0) {
      DeviceBuffer data(64);
      ASSERT_EQ(HcclRecv(data.data(), 16, kFp32, 1, self.comm, self.stream), 0);
      EXPECT_NE(aclrtSynchronizeStream(self.stream), 0);
      EXPECT_EQ(self.async_error(), kRemote);
    }
    EXPECT_EQ(HcclCommDestroy(self.comm), 0);
  });
  EXPECT_EQ(statuses, (Statuses{0, 0}));
}

// Each rank does `issue`; both must hear of the mismatch.
void expect_mismatch(const std::function<int(std::uint32_t, std::byte*, const Rank&)>& issue) {
  const auto statuses = in_processes(2, [&](std::uint32_t rank, Shared& shared) {
    Rank self(rank, 2, shared);
    DeviceBuffer data(1 << 20);
    ASSERT_EQ(issue(rank, data.data(), self), 0) << aclGetRecentErrMsg();
    EXPECT_NE(aclrtSynchronizeStream(self.stream), 0);
    EXPECT_EQ(self.async_error(), kPara);
    // Not before the other has looked: a rank that has left is another error.
    shared.arrived.fetch_add(1);
    wait_for(shared.arrived, 2);
    EXPECT_EQ(HcclCommDestroy(self.comm), 0);
  });
  EXPECT_EQ(statuses, (Statuses{0, 0}));
}

TEST(Ranks, ADifferentCountIsAnErrorOfBoth) {
  for (const std::uint64_t count : {10ULL, 100'000ULL}) {
    expect_mismatch([=](std::uint32_t rank, std::byte* data, const Rank& self) {
      return HcclAllReduce(data, data, count + rank, kFp32, 0, self.comm, self.stream);
    });
  }
}

TEST(Ranks, ADifferentTypeOrderOrRootIsAnErrorOfBoth) {
  expect_mismatch([](std::uint32_t rank, std::byte* data, const Rank& self) {
    return HcclAllReduce(data, data, 10, rank == 0 ? kFp32 : 2, 0, self.comm, self.stream);
  });
  expect_mismatch([](std::uint32_t rank, std::byte* data, const Rank& self) {
    return rank == 0 ? HcclBarrier(self.comm, self.stream)
                     : HcclAllReduce(data, data, 10, kFp32, 0, self.comm, self.stream);
  });
  expect_mismatch([](std::uint32_t rank, std::byte* data, const Rank& self) {
    return HcclBroadcast(data, 10, kFp32, rank, self.comm, self.stream);
  });
}

TEST(Ranks, AMessageOfAnotherLengthIsAnErrorOfBoth) {
  expect_mismatch([](std::uint32_t rank, std::byte* data, const Rank& self) {
    return rank == 0 ? HcclSend(data, 100'000, kFp32, 1, self.comm, self.stream)
                     : HcclRecv(data, 100'001, kFp32, 0, self.comm, self.stream);
  });
}

TEST(Ranks, ARankThatDoesNotCallIsATimeout) {
  ::setenv("HCCL_EXEC_TIMEOUT", "1", 1);
  const auto statuses = in_processes(2, [](std::uint32_t rank, Shared& shared) {
    Rank self(rank, 2, shared);
    if (rank == 0) {
      ASSERT_EQ(HcclBarrier(self.comm, self.stream), 0);
      EXPECT_NE(aclrtSynchronizeStream(self.stream), 0);
      EXPECT_EQ(self.async_error(), kTimeout);
      shared.arrived = 1;
    }
    wait_for(shared.arrived, 1);
    EXPECT_EQ(HcclCommDestroy(self.comm), 0);
  });
  ::unsetenv("HCCL_EXEC_TIMEOUT");
  EXPECT_EQ(statuses, (Statuses{0, 0}));
}

TEST(Ranks, ARankThatDoesNotComeIsATimeout) {
  ::setenv("HCCL_CONNECT_TIMEOUT", "1", 1);
  const auto statuses = in_processes(1, [](std::uint32_t, Shared& shared) {
    void* comm = nullptr;
    EXPECT_EQ(aclrtSetDevice(0), 0);
    EXPECT_EQ(HcclGetRootInfo(&shared.root), 0);
    EXPECT_EQ(HcclCommInitRootInfo(2, &shared.root, 0, &comm), kTimeout);
  });
  ::unsetenv("HCCL_CONNECT_TIMEOUT");
  EXPECT_EQ(statuses, Statuses{0});
}

TEST(Ranks, RanksThatDisagreeOnTheirNumberAreRefused) {
  ::setenv("HCCL_CONNECT_TIMEOUT", "2", 1);
  const auto statuses = in_processes(1, [](std::uint32_t, Shared& shared) {
    void* comm = nullptr;
    EXPECT_EQ(aclrtSetDevice(0), 0);
    EXPECT_EQ(HcclGetRootInfo(&shared.root), 0);
    EXPECT_EQ(HcclCommInitRootInfo(3, &shared.root, 0, &comm), kTimeout);
    EXPECT_EQ(HcclCommInitRootInfo(2, &shared.root, 1, &comm), kPara);
  });
  ::unsetenv("HCCL_CONNECT_TIMEOUT");
  EXPECT_EQ(statuses, Statuses{0});
}

}  // namespace
}  // namespace onesided::sim::hccl
