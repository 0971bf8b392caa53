// Shared by the tests of sessions: engines reduced to their sessions, scripted peers, and a recorder of reported
// events.
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
    10'000;  // far above any expected duration; a hang fails the test instead of blocking the suite
inline const std::string kSecret = "a secret of 32 bytes for testing";

// Records events; tests wait for the expected ones.
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
  void on_drained(const std::shared_ptr<Session>&) override {
    MutexLock lock(mutex_);
    ++drained_;
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
  int drained_ = 0;
};

// An engine reduced to its sessions.
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

// A scripted peer: a correct handshake over the Unix socket (or TCP, with the secret), then the test's own frames. It
// reads only when the test calls next().
class RawPeer {
 public:
  RawPeer(const std::string& id, PeerHello hello, bool local = true) {
    const auto tcp = *resolve_numeric(*Endpoint::parse(id));
    const auto address = local ? unix_address(tcp) : tcp;
    Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), address.get(), address.length), 0);
    socket_ = std::make_unique<FramedSocket>(std::move(socket), local);
    const auto unix_peer = local ? std::optional(UnixPeer{}) : std::nullopt;
    DialerHandshake handshake({hello, kSecret, unix_peer}, id, id);
    const auto client = handshake.on_greeting(next(FrameKind::kHandshake).payload);
    EXPECT_TRUE(client.ok());
    EXPECT_TRUE(socket_->send(FrameKind::kHandshake, *client).ok());
    const auto opened = handshake.on_reply(next(FrameKind::kHandshake).payload);
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().to_string());
    if (local || !opened.ok()) return;
    socket_->seal(opened->keys.to_listener);
    socket_->demand_seal(opened->keys.to_dialer);
  }

  FramedSocket& socket() { return *socket_; }
  // Waits for a frame; an empty one if the connection ended.
  Frame next(FrameKind kind = FrameKind::kControl) {
    while (true) {
      auto frame = socket_->next(kind);
      EXPECT_TRUE(frame.ok()) << (frame.ok() ? "" : frame.error().to_string());
      if (!frame) return {};
      if (*frame) return std::move(**frame);
      pollfd readable{socket_->fd(), POLLIN, 0};
      EXPECT_EQ(::poll(&readable, 1, static_cast<int>(kTestMs)), 1);
      if (const auto filled = socket_->fill(); !filled) {
        ADD_FAILURE() << filled.error().to_string();
        return {};
      }
    }
  }
  Result<bool> say(const ControlMessage& message) {
    return socket_->send(FrameKind::kControl, encode_control(message));
  }

 private:
  std::unique_ptr<FramedSocket> socket_;
};

// Blocks the I/O thread of a node, as if its process were suspended, until resume().
class Frozen {
 public:
  explicit Frozen(Node& node) {
    // The engine refuses to dial itself; `done` runs on its own I/O thread.
    node.sessions->connect_async(node.id(), Deadline::after_ms(kTestMs), [this](Result<std::shared_ptr<Session>>) {
      MutexLock lock(mutex_);
      frozen_ = true;
      changed_.notify_all();
      while (!free_) changed_.wait(lock);
      gone_ = true;
      changed_.notify_all();
    });
    MutexLock lock(mutex_);
    while (!frozen_) changed_.wait(lock);
  }
  ~Frozen() { resume(); }
  void resume() {
    MutexLock lock(mutex_);
    free_ = true;
    changed_.notify_all();
    while (!gone_) changed_.wait(lock);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool frozen_ = false, free_ = false, gone_ = false;
};

}  // namespace onesided::testing
