#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "ascend_sim/acl/functions.h"
#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

// Holds a stream until it is told to go on.
struct Gate {
  std::latch latch{1};
  static void wait(void* gate) { static_cast<Gate*>(gate)->latch.wait(); }
  void open() { latch.count_down(); }
};

class Streams : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), kAclOk); }
  void TearDown() override {
    for (void* stream : streams_) EXPECT_EQ(aclrtDestroyStream(stream), kAclOk);
    for (void* event : events_) EXPECT_EQ(aclrtDestroyEvent(event), kAclOk);
  }
  void* stream() {
    streams_.push_back(nullptr);
    EXPECT_EQ(aclrtCreateStream(&streams_.back()), kAclOk);
    return streams_.back();
  }
  void* event() {
    events_.push_back(nullptr);
    EXPECT_EQ(aclrtCreateEventExWithFlag(&events_.back(), 0), kAclOk);
    return events_.back();
  }
  static int query(void* stream) {
    int status = -1;
    EXPECT_EQ(aclrtStreamQuery(stream, &status), kAclOk);
    return status;
  }
  static int recorded(void* event) {
    int status = -1;
    EXPECT_EQ(aclrtQueryEventStatus(event, &status), kAclOk);
    return status;
  }

  std::vector<void*> streams_;
  std::vector<void*> events_;
};

TEST_F(Streams, RunInOrderAndOnTheirOwn) {
  void* queue = stream();
  Gate gate;
  ASSERT_EQ(aclrtLaunchHostFunc(queue, Gate::wait, &gate), kAclOk);
  std::vector<int> order;
  struct Step {
    std::vector<int>* order;
    int number;
  };
  std::vector<Step> steps;
  for (int i = 0; i < 100; ++i) steps.push_back({&order, i});
  for (Step& step : steps) {
    const auto run = [](void* raw) {
      auto* self = static_cast<Step*>(raw);
      self->order->push_back(self->number);
    };
    ASSERT_EQ(aclrtLaunchHostFunc(queue, run, &step), kAclOk);
  }
  EXPECT_EQ(query(queue), 1) << "the caller did not run it";
  gate.open();
  ASSERT_EQ(aclrtSynchronizeStream(queue), kAclOk);
  EXPECT_EQ(query(queue), 0);
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(Streams, AnEventOrdersOneStreamBehindAnother) {
  void* first = stream();
  void* second = stream();
  void* mark = event();
  Gate gate;
  std::atomic<int> seen{0};
  int value = 0;
  struct Pair {
    int* value;
    std::atomic<int>* seen;
  } pair{&value, &seen};
  EXPECT_EQ(recorded(mark), 1) << "never recorded: nothing to wait for";
  ASSERT_EQ(aclrtLaunchHostFunc(first, Gate::wait, &gate), kAclOk);
  ASSERT_EQ(aclrtLaunchHostFunc(first, [](void* p) { *static_cast<Pair*>(p)->value = 5; }, &pair), kAclOk);
  ASSERT_EQ(aclrtRecordEvent(mark, first), kAclOk);
  ASSERT_EQ(aclrtStreamWaitEvent(second, mark), kAclOk);
  ASSERT_EQ(aclrtLaunchHostFunc(
                second, [](void* p) { *static_cast<Pair*>(p)->seen = *static_cast<Pair*>(p)->value; }, &pair),
            kAclOk);
  EXPECT_EQ(recorded(mark), 0);
  EXPECT_EQ(query(second), 1);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeStream(second), kAclOk);
  EXPECT_EQ(seen, 5);
  EXPECT_EQ(recorded(mark), 1);
}

// T0: record A on s1 (held) | s2 waits for A | record A again on s3: the wait is still for the first mark.
TEST_F(Streams, AWaitIsForTheMarkOfItsTime) {
  void* first = stream();
  void* second = stream();
  void* third = stream();
  void* mark = event();
  Gate hold_first;
  Gate hold_third;
  ASSERT_EQ(aclrtLaunchHostFunc(first, Gate::wait, &hold_first), kAclOk);
  ASSERT_EQ(aclrtRecordEvent(mark, first), kAclOk);
  ASSERT_EQ(aclrtStreamWaitEvent(second, mark), kAclOk);
  ASSERT_EQ(aclrtLaunchHostFunc(third, Gate::wait, &hold_third), kAclOk);
  ASSERT_EQ(aclrtRecordEvent(mark, third), kAclOk);
  hold_first.open();
  EXPECT_EQ(aclrtSynchronizeStream(second), kAclOk) << "does not wait for the later record";
  EXPECT_EQ(recorded(mark), 0);
  hold_third.open();
  EXPECT_EQ(aclrtSynchronizeEvent(mark), kAclOk);
}

TEST_F(Streams, TimesOutAndGoesOn) {
  void* queue = stream();
  Gate gate;
  ASSERT_EQ(aclrtLaunchHostFunc(queue, Gate::wait, &gate), kAclOk);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(queue, 1), kRtStreamSyncTimeout);
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(1), kRtStreamSyncTimeout);
  gate.open();
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(queue, -1), kAclOk);
}

TEST_F(Streams, AbortDropsWhatHasNotBegunAndFreesItsWaiters) {
  void* queue = stream();
  void* mark = event();
  Gate gate;
  int ran = 0;
  std::latch begun(1);
  struct Both {
    Gate* gate;
    std::latch* begun;
  } both{&gate, &begun};
  ASSERT_EQ(aclrtLaunchHostFunc(
                queue,
                [](void* raw) {
                  static_cast<Both*>(raw)->begun->count_down();
                  static_cast<Both*>(raw)->gate->latch.wait();
                },
                &both),
            kAclOk);
  ASSERT_EQ(aclrtLaunchHostFunc(queue, [](void* p) { ++*static_cast<int*>(p); }, &ran), kAclOk);
  ASSERT_EQ(aclrtRecordEvent(mark, queue), kAclOk);
  begun.wait();
  ASSERT_EQ(aclrtStreamAbort(queue), kAclOk);
  EXPECT_EQ(aclrtSynchronizeEvent(mark), kAclOk);
  gate.open();
  EXPECT_EQ(aclrtSynchronizeStream(queue), kAclOk);
  EXPECT_EQ(ran, 0);
}

// T0: s2 waits for a mark on s1, which is held | T1: s2 is destroyed by force -> its wait ends, no thread hangs.
TEST_F(Streams, AForcedEndDoesNotWaitForAMarkThatNeverComes) {
  void* held = stream();
  void* waiting = nullptr;
  ASSERT_EQ(aclrtCreateStream(&waiting), kAclOk);
  void* mark = event();
  Gate gate;
  ASSERT_EQ(aclrtLaunchHostFunc(held, Gate::wait, &gate), kAclOk);
  ASSERT_EQ(aclrtRecordEvent(mark, held), kAclOk);
  ASSERT_EQ(aclrtStreamWaitEvent(waiting, mark), kAclOk);
  EXPECT_EQ(aclrtDestroyStreamForce(waiting), kAclOk);
  gate.open();
  EXPECT_EQ(aclrtSynchronizeStream(held), kAclOk);
}

TEST_F(Streams, HandlesOfTheDeadAreErrors) {
  void* queue = nullptr;
  void* mark = nullptr;
  ASSERT_EQ(aclrtCreateStream(&queue), kAclOk);
  ASSERT_EQ(aclrtCreateEvent(&mark), kAclOk);
  EXPECT_EQ(aclrtDestroyStream(queue), kAclOk);
  EXPECT_EQ(aclrtDestroyEvent(mark), kAclOk);
  EXPECT_NE(aclrtDestroyStream(queue), kAclOk);
  EXPECT_NE(aclrtDestroyEvent(mark), kAclOk);
  EXPECT_NE(aclrtSynchronizeStream(queue), kAclOk);
  EXPECT_NE(aclrtRecordEvent(mark, queue), kAclOk);
  EXPECT_NE(aclrtLaunchHostFunc(queue, Gate::wait, nullptr), kAclOk);
  int wild = 0;
  EXPECT_NE(aclrtSynchronizeStream(&wild), kAclOk);
  EXPECT_THAT(aclGetRecentErrMsg(), testing::HasSubstr("not a stream"));
}

TEST_F(Streams, ElapsedTimeNeedsTwoPassedMarks) {
  void* queue = stream();
  void* begin = event();
  void* end = event();
  float ms = -1;
  EXPECT_NE(aclrtEventElapsedTime(&ms, begin, end), kAclOk);
  ASSERT_EQ(aclrtRecordEvent(begin, queue), kAclOk);
  ASSERT_EQ(aclrtRecordEvent(end, queue), kAclOk);
  ASSERT_EQ(aclrtSynchronizeStream(queue), kAclOk);
  ASSERT_EQ(aclrtEventElapsedTime(&ms, begin, end), kAclOk);
  EXPECT_GE(ms, 0);
}

TEST_F(Streams, PlainHostMemoryMayChangeAsSoonAsTheCopyIsAskedFor) {
  void* queue = stream();
  void* device = nullptr;
  ASSERT_EQ(aclrtMalloc(&device, 4 * kMiB, kMallocHugeOnly), kAclOk);
  Gate gate;
  ASSERT_EQ(aclrtLaunchHostFunc(queue, Gate::wait, &gate), kAclOk);
  std::vector<char> host(1000, 'a');
  ASSERT_EQ(aclrtMemcpyAsync(device, 4 * kMiB, host.data(), host.size(), 1, queue), kAclOk);
  std::fill(host.begin(), host.end(), 'b');
  EXPECT_EQ(*static_cast<char*>(device), 0) << "the copy waits its turn";
  gate.open();
  ASSERT_EQ(aclrtSynchronizeStream(queue), kAclOk);
  EXPECT_EQ(*static_cast<char*>(device), 'a');
  std::vector<char> large(3 * kMiB, 'c');
  ASSERT_EQ(aclrtMemcpyAsync(device, 4 * kMiB, large.data(), large.size(), 1, queue), kAclOk);
  std::fill(large.begin(), large.end(), 'd');
  ASSERT_EQ(aclrtSynchronizeStream(queue), kAclOk);
  EXPECT_EQ(static_cast<char*>(device)[3 * kMiB - 1], 'c');
  ASSERT_EQ(aclrtFree(device), kAclOk);
}

TEST_F(Streams, FreedMemoryStaysUntilItsCopiesAreDone) {
  void* queue = stream();
  void* source = nullptr;
  void* target = nullptr;
  ASSERT_EQ(aclrtMalloc(&source, 2 * kMiB, kMallocHugeOnly), kAclOk);
  ASSERT_EQ(aclrtMalloc(&target, 2 * kMiB, kMallocHugeOnly), kAclOk);
  ASSERT_EQ(aclrtMemset(source, 2 * kMiB, 9, 2 * kMiB), kAclOk);
  Gate gate;
  ASSERT_EQ(aclrtLaunchHostFunc(queue, Gate::wait, &gate), kAclOk);
  ASSERT_EQ(aclrtMemcpyAsync(target, 2 * kMiB, source, 2 * kMiB, 3, queue), kAclOk);
  ASSERT_EQ(aclrtFree(source), kAclOk);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeStream(queue), kAclOk);
  EXPECT_EQ(static_cast<char*>(target)[2 * kMiB - 1], 9);
  ASSERT_EQ(aclrtFree(target), kAclOk);
}

TEST_F(Streams, EachThreadHasItsOwnCurrentDevice) {
  ASSERT_EQ(aclInit(nullptr), kAclOk);
  std::thread other([] {
    int device = -1;
    EXPECT_EQ(aclrtGetDevice(&device), kRtContextNull);
    void* queue = nullptr;
    EXPECT_EQ(aclrtCreateStream(&queue), kRtContextNull);
    EXPECT_EQ(aclrtSetDevice(1), kAclOk);
    EXPECT_EQ(aclrtGetDevice(&device), kAclOk);
    EXPECT_EQ(device, 1);
    EXPECT_EQ(aclrtSetDevice(99), kRtInvalidDevice);
    EXPECT_EQ(aclrtGetDevice(&device), kAclOk);
    EXPECT_EQ(device, 1) << "a refused call changes nothing";
  });
  other.join();
  int device = -1;
  EXPECT_EQ(aclrtGetDevice(&device), kAclOk);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(aclInit(nullptr), kAclRepeatInitialize);
  EXPECT_EQ(aclFinalize(), kAclOk);
}

TEST_F(Streams, ContextsAreCreatedUsedAndDestroyed) {
  void* own = nullptr;
  void* before = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&before), kAclOk);
  ASSERT_EQ(aclrtCreateContext(&own, 1), kAclOk);
  int device = -1;
  ASSERT_EQ(aclrtGetDevice(&device), kAclOk);
  EXPECT_EQ(device, 1);
  ASSERT_EQ(aclrtDestroyContext(own), kAclOk);
  EXPECT_EQ(aclrtDestroyContext(own), kRtParamInvalid);
  EXPECT_EQ(aclrtDestroyContext(before), kRtParamInvalid) << "a device's own";
  EXPECT_EQ(aclrtSetCurrentContext(own), kRtContextNull);
  ASSERT_EQ(aclrtSetCurrentContext(before), kAclOk);
}

// Four threads, each with streams of its own and one shared by all, chained by events; sums come out exact.
TEST_F(Streams, OrderHoldsUnderStress) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  void* shared = stream();
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ASSERT_EQ(aclrtSetDevice(t % 2), kAclOk);
      void* a = nullptr;
      void* b = nullptr;
      void* mark = nullptr;
      void* memory = nullptr;
      ASSERT_EQ(aclrtCreateStream(&a), kAclOk);
      ASSERT_EQ(aclrtCreateStream(&b), kAclOk);
      ASSERT_EQ(aclrtCreateEvent(&mark), kAclOk);
      ASSERT_EQ(aclrtMalloc(&memory, 4096, kMallocNormalOnly), kAclOk);
      auto* counter = static_cast<int*>(memory);
      ASSERT_EQ(aclrtMemset(memory, 4096, 0, 4096), kAclOk);
      for (int i = 0; i < kRounds; ++i) {
        // a adds, b doubles the evidence: without the events the two would race.
        ASSERT_EQ(aclrtLaunchHostFunc(a, [](void* p) { *static_cast<int*>(p) += 1; }, counter), kAclOk);
        ASSERT_EQ(aclrtRecordEvent(mark, a), kAclOk);
        ASSERT_EQ(aclrtStreamWaitEvent(b, mark), kAclOk);
        ASSERT_EQ(aclrtLaunchHostFunc(b, [](void* p) { *static_cast<int*>(p) += 1; }, counter), kAclOk);
        ASSERT_EQ(aclrtRecordEvent(mark, b), kAclOk);
        ASSERT_EQ(aclrtStreamWaitEvent(a, mark), kAclOk);
        ASSERT_EQ(aclrtLaunchHostFunc(
                      shared, [](void* p) { static_cast<std::atomic<int>*>(p)->fetch_add(1); }, &ran),
                  kAclOk);
      }
      int result = 0;
      ASSERT_EQ(aclrtMemcpyAsync(&result, sizeof(result), memory, sizeof(result), 2, a), kAclOk);
      ASSERT_EQ(aclrtSynchronizeStream(a), kAclOk);
      EXPECT_EQ(result, 2 * kRounds);
      EXPECT_EQ(aclrtDestroyStream(a), kAclOk);
      EXPECT_EQ(aclrtDestroyStreamForce(b), kAclOk);
      EXPECT_EQ(aclrtDestroyEvent(mark), kAclOk);
      EXPECT_EQ(aclrtFree(memory), kAclOk);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(aclrtSynchronizeStream(shared), kAclOk);
  EXPECT_EQ(ran, kThreads * kRounds);
}

}  // namespace
}  // namespace onesided::sim
