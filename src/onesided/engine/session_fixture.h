// Why: engines as far as sessions go, and a record of what was reported: what the tests of sessions share.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <random>
#include <set>
#include <thread>

#include "onesided/base/mutex.h"
#include "onesided/engine/framed_socket.h"
#include "onesided/engine/listener.h"
#include "onesided/engine/session.h"

namespace onesided::testing {

inline constexpr std::int64_t kTestMs =
    10'000;  // far more than anything takes; a hang fails instead of blocking the suite
inline const std::string kSecret = "a secret of 32 bytes for testing";

// Writes down what happened; tests wait for what they expect.
class Recorder : public SessionEvents {
 public:
  Result<void> on_accepted(const std::shared_ptr<Session>& session) override {
    MutexLock lock(mutex_);
    if (refuse_) return *refuse_;
    accepted_.push_back(session);
    changed_.notify_all();
    if (first_message_) return session->send(*first_message_);
    return {};
  }
  void on_connected(const std::shared_ptr<Session>& session) override {
    MutexLock lock(mutex_);
    connected_.push_back(session);
    changed_.notify_all();
  }
  void on_message(const std::shared_ptr<Session>& session, ControlMessage message, std::vector<Fd> fds) override {
    if (echo_) (void)session->send(message);
    MutexLock lock(mutex_);
    messages_.push_back(std::move(message));
    for (auto& fd : fds) fds_.push_back(std::move(fd));
    changed_.notify_all();
  }
  void on_lost(const std::shared_ptr<Session>& session, const Error& reason) override {
    EXPECT_FALSE(session->alive());
    MutexLock lock(mutex_);
    EXPECT_TRUE(lost_ids_.insert(session->id()).second) << "on_lost twice";
    lost_.push_back(reason);
    changed_.notify_all();
  }
  void on_data_stream(const std::shared_ptr<Session>&, std::string_view transport, Fd stream) override {
    MutexLock lock(mutex_);
    streams_.emplace_back(transport, std::move(stream));
    changed_.notify_all();
  }

  template <typename Condition>
  bool wait(Condition condition) {
    const auto deadline = Deadline::after_ms(kTestMs);
    MutexLock lock(mutex_);
    while (!condition(*this)) {
      if (!changed_.wait(lock, deadline) && deadline.passed()) return condition(*this);
    }
    return true;
  }
  bool wait_messages(std::size_t count) {
    return wait([count](Recorder& self) ONESIDED_NO_TSA { return self.messages_.size() >= count; });
  }
  bool wait_lost(std::size_t count) {
    return wait([count](Recorder& self) ONESIDED_NO_TSA { return self.lost_.size() >= count; });
  }
  // True if anything was reported within the time.
  bool reports_within(std::int64_t ms) {
    const auto deadline = Deadline::after_ms(ms);
    MutexLock lock(mutex_);
    const auto before = lost_.size() + messages_.size();
    while (!deadline.passed()) changed_.wait(lock, deadline);
    return lost_.size() + messages_.size() != before;
  }
  Error lost(std::size_t index) {
    MutexLock lock(mutex_);
    return lost_[index];
  }
  std::shared_ptr<Session> accepted(std::size_t index = 0) {
    wait([index](Recorder& self) ONESIDED_NO_TSA { return self.accepted_.size() > index; });
    MutexLock lock(mutex_);
    return accepted_.size() > index ? accepted_[index] : nullptr;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Session>> accepted_, connected_;
  std::deque<ControlMessage> messages_;
  std::deque<Fd> fds_;
  std::vector<Error> lost_;
  std::set<std::uint64_t> lost_ids_;
  std::deque<std::pair<std::string, Fd>> streams_;
  std::optional<Error> refuse_;
  std::optional<ControlMessage> first_message_;
  bool echo_ = false;
};

// An engine as far as sessions go.
struct Node {
  explicit Node(SessionOptions options = {}) {
    auto made = Sessions::create(std::move(options), events);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().to_string());
    if (made) sessions = std::move(*made);
  }
  ~Node() {
    if (sessions) sessions->close();
  }
  const std::string& id() const { return sessions->hello().engine_id; }
  std::shared_ptr<Session> connect(const Node& other) {
    auto session = sessions->connect(other.id(), Deadline::after_ms(kTestMs));
    EXPECT_TRUE(session.ok()) << (session.ok() ? "" : session.error().to_string());
    return session ? *session : nullptr;
  }
  Recorder events;
  std::unique_ptr<Sessions> sessions;
};

}  // namespace onesided::testing
