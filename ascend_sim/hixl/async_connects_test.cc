#include "async_connects.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <set>

namespace onesided::hixl_abi {
namespace {

using Job = AsyncConnects::Job;

// Jobs that end when the test says so.
class Gate {
 public:
  Result<void> run(Job job, const std::string& remote) {
    std::unique_lock lock(mutex_);
    ++running_;
    started_.push_back((job == Job::kConnect ? "connect " : "disconnect ") + remote);
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || let_.erase(remote) > 0; });
    --running_;
    changed_.notify_all();
    return remote == "bad" ? Result<void>(Error(Status::kFailed, "no engine listens")) : Result<void>();
  }
  void let(const std::string& remote) {
    std::lock_guard lock(mutex_);
    let_.insert(remote);
    changed_.notify_all();
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_started(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_.size() >= count; });
  }
  std::vector<std::string> started() {
    std::lock_guard lock(mutex_);
    return started_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> started_;
  std::set<std::string> let_;
  int running_ = 0;
  bool open_ = false;
};

TEST(AsyncConnects, OneRemoteIsInOrderOthersPassIt) {
  Gate gate;
  AsyncConnects queue(2, 16, [&](Job job, const std::string& remote, std::int32_t) { return gate.run(job, remote); });
  ASSERT_TRUE(queue.submit(Job::kConnect, "a", 10).ok());
  ASSERT_TRUE(queue.submit(Job::kDisconnect, "a", 10).ok());
  ASSERT_TRUE(queue.submit(Job::kConnect, "b", 10).ok());
  gate.wait_started(2);
  EXPECT_EQ(queue.state("a"), ConnectState::kConnecting);
  EXPECT_EQ(queue.state("b"), ConnectState::kConnecting);
  gate.let("b");
  gate.let("a");
  gate.wait_started(3);
  EXPECT_EQ(gate.started().back(), "disconnect a");
  EXPECT_EQ(queue.state("a"), ConnectState::kDisconnecting);
  gate.open();
}

TEST(AsyncConnects, StatesFromPendingToTheEnd) {
  Gate gate;
  AsyncConnects queue(1, 16, [&](Job job, const std::string& remote, std::int32_t) { return gate.run(job, remote); });
  EXPECT_EQ(queue.state("a"), ConnectState::kNotConnected);
  ASSERT_TRUE(queue.submit(Job::kConnect, "a", 10).ok());
  gate.wait_started(1);
  ASSERT_TRUE(queue.submit(Job::kConnect, "bad", 10).ok());
  ASSERT_TRUE(queue.submit(Job::kDisconnect, "c", 10).ok());
  EXPECT_EQ(queue.state("bad"), ConnectState::kConnectPending);
  EXPECT_EQ(queue.state("c"), ConnectState::kDisconnectPending);
  EXPECT_EQ(queue.states().size(), 3U);
  gate.open();
  gate.wait_started(3);
  EXPECT_EQ(queue.state("a"), ConnectState::kConnected);
  EXPECT_EQ(queue.state("bad"), ConnectState::kConnectFailed);
}

TEST(AsyncConnects, FullIsSaidAndDropsNothing) {
  Gate gate;
  AsyncConnects queue(1, 2, [&](Job job, const std::string& remote, std::int32_t) { return gate.run(job, remote); });
  ASSERT_TRUE(queue.submit(Job::kConnect, "a", 10).ok());
  gate.wait_started(1);
  ASSERT_TRUE(queue.submit(Job::kConnect, "b", 10).ok());
  ASSERT_TRUE(queue.submit(Job::kConnect, "c", 10).ok());
  EXPECT_EQ(queue.submit(Job::kConnect, "d", 10).status(), Status::kResourceExhausted);
  EXPECT_EQ(queue.state("d"), ConnectState::kNotConnected);
  gate.open();
  gate.wait_started(3);
  EXPECT_EQ(gate.started(), std::vector<std::string>({"connect a", "connect b", "connect c"}));
}

TEST(AsyncConnects, StopFailsWhatWaits) {
  Gate gate;
  AsyncConnects queue(1, 16, [&](Job job, const std::string& remote, std::int32_t) { return gate.run(job, remote); });
  ASSERT_TRUE(queue.submit(Job::kConnect, "a", 10).ok());
  gate.wait_started(1);
  ASSERT_TRUE(queue.submit(Job::kConnect, "b", 10).ok());
  gate.open();
  queue.stop();
  queue.stop();
  EXPECT_EQ(queue.state("a"), ConnectState::kConnected);
  EXPECT_NE(queue.state("b"), ConnectState::kConnectPending);
  EXPECT_EQ(queue.submit(Job::kConnect, "c", 10).status(), Status::kClosed);
}

}  // namespace
}  // namespace onesided::hixl_abi
