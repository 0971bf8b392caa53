#include "onesided/engine/session.h"

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
#include <thread>

#include "onesided/base/mutex.h"
#include "onesided/engine/listener.h"

namespace onesided {
namespace {

constexpr std::int64_t kTestMs = 10'000;  // far more than anything takes; a hang fails instead of blocking the suite
const std::string kSecret = "a secret of 32 bytes for testing";

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

TEST(Session, SameHostPeersMeetOverTheUnixSocketAndKnowEachOther) {
  SessionOptions options;
  options.transports = {"shm", "cma", "tcp"};
  Node a, b(options);
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  EXPECT_TRUE(session->initiated());
  EXPECT_TRUE(session->peer().local);
  EXPECT_EQ(session->peer().pid, ::getpid());
  EXPECT_EQ(session->hello(), b.sessions->hello());
  const auto accepted = b.events.accepted();
  ASSERT_TRUE(accepted);
  EXPECT_FALSE(accepted->initiated());
  EXPECT_EQ(accepted->hello(), a.sessions->hello());
}

TEST(Session, MessagesArriveInOrderWithTheirDescriptors) {
  Node a, b;
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  for (std::uint64_t i = 0; i < 200; ++i) {
    std::vector<Fd> fds;
    FileReply reply{.tag = i, .file_ids = {}, .gone = {}};
    if (i % 3 == 0) {
      Fd file(::memfd_create("passed", MFD_CLOEXEC));
      ASSERT_EQ(::pwrite(file.get(), &i, sizeof i, 0), static_cast<ssize_t>(sizeof i));
      fds.push_back(std::move(file));
      reply.file_ids = {i};
    }
    ASSERT_TRUE(session->send(reply, std::move(fds)).ok());
  }
  ASSERT_TRUE(b.events.wait_messages(200));
  MutexLock lock(b.events.mutex_);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto& reply = std::get<FileReply>(b.events.messages_[i]);
    EXPECT_EQ(reply.tag, i);
    if (i % 3 != 0) continue;
    std::uint64_t content = ~0ULL;
    ASSERT_EQ(::pread(b.events.fds_.front().get(), &content, sizeof content, 0), static_cast<ssize_t>(sizeof content));
    EXPECT_EQ(content, i);
    b.events.fds_.pop_front();
  }
  EXPECT_TRUE(b.events.fds_.empty());
}

TEST(Session, WhatOnAcceptedSendsIsTheFirstThingThePeerHears) {
  Node a, b;
  b.events.first_message_ = TableOffer{4096, 7, 0};
  ASSERT_TRUE(a.connect(b));
  ASSERT_TRUE(a.events.wait_messages(1));
  EXPECT_EQ(std::get<TableOffer>(a.events.messages_[0]).lease_slot, 7u);
}

TEST(Session, ARefusalReachesTheCallerInTheRefusersWords) {
  Node a, b;
  b.events.refuse_ = Error(Status::kResourceExhausted, "no lease slot left");
  const auto session = a.sessions->connect(b.id(), Deadline::after_ms(kTestMs));
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status(), Status::kResourceExhausted);
  EXPECT_EQ(session.error().text(), "no lease slot left");
  EXPECT_TRUE(b.events.lost_.empty());
}

TEST(Session, NotificationsOfEverySizeArriveByteForByte) {
  Node a, b;
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  std::uint64_t sequence = 0;
  const std::vector<std::size_t> sizes = {0, 1, 255, 256, 257, 4095, 4096, 65536, 1 << 20, 15 << 20};
  const auto content = [](std::size_t size) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 131 + size);
    return text;
  };
  for (const auto size : sizes)
    ASSERT_TRUE(session->send(Notify{++sequence, std::string("n\0\xff", 3), content(size)}).ok());
  ASSERT_TRUE(b.events.wait_messages(sizes.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i)
    EXPECT_EQ(b.events.messages_[i], ControlMessage(Notify{i + 1, std::string("n\0\xff", 3), content(sizes[i])}));
  const auto big = session->send(Notify{1, "n", std::string(kMaxNotifyBytes, 'x')});
  EXPECT_EQ(big.status(), Status::kParamInvalid);
  EXPECT_TRUE(session->alive());
}

TEST(Session, CloseSaysByeToThePeerAfterWhatWasQueued) {
  Node a, b;
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  for (std::uint64_t i = 1; i <= 20; ++i) ASSERT_TRUE(session->send(Notify{i, "n", std::string(100'000, 'x')}).ok());
  session->close("had enough");
  EXPECT_EQ(session->send(Heartbeat{}).status(), Status::kClosed);
  ASSERT_TRUE(b.events.wait_lost(1));
  EXPECT_EQ(b.events.lost_[0].status(), Status::kNotConnected);
  EXPECT_THAT(b.events.lost_[0].text(), ::testing::HasSubstr("had enough"));
  EXPECT_EQ(b.events.messages_.size(), 20u);
  ASSERT_TRUE(a.events.wait_lost(1));
  EXPECT_EQ(a.events.lost_[0].status(), Status::kClosed);
  // And again: nothing is left of the old one.
  EXPECT_TRUE(a.connect(b));
}

TEST(Session, ASecondConnectFindsTheFirst) {
  Node a, b;
  ASSERT_TRUE(a.connect(b));
  EXPECT_EQ(a.sessions->connect(b.id(), Deadline::after_ms(kTestMs)).status(), Status::kAlreadyConnected);
  const auto port = b.id().substr(b.id().find(':'));
  EXPECT_EQ(a.sessions->connect("localhost" + port, Deadline::after_ms(kTestMs)).status(), Status::kAlreadyConnected);
}

TEST(Session, BothSidesMayConnectAtOnce) {
  for (int round = 0; round < 20; ++round) {
    Node a, b;
    std::shared_ptr<Session> from_a, from_b;
    std::thread other([&] { from_b = b.connect(a); });
    from_a = a.connect(b);
    other.join();
    ASSERT_TRUE(from_a && from_b);
    ASSERT_TRUE(from_a->send(NotifyAck{1, Status::kSuccess}).ok());
    ASSERT_TRUE(from_b->send(NotifyAck{2, Status::kSuccess}).ok());
    ASSERT_TRUE(a.events.wait_messages(1));
    ASSERT_TRUE(b.events.wait_messages(1));
    EXPECT_TRUE(a.events.lost_.empty() && b.events.lost_.empty());
  }
}

TEST(Session, ManyThreadsConnectOnceTogether) {
  Node a, b;
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto session = a.sessions->connect(b.id(), Deadline::after_ms(kTestMs));
      if (session) ++won;
      EXPECT_TRUE(session.ok() || session.status() == Status::kAlreadyConnected);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(b.events.accepted_.size(), 1u);
}

TEST(Session, NobodyThereIsNotConnectedAtOnce) {
  Node a;
  std::string id;
  {
    Node gone;
    id = gone.id();
  }
  const auto session = a.sessions->connect(id, Deadline::after_ms(kTestMs));
  EXPECT_EQ(session.status(), Status::kNotConnected);
  EXPECT_EQ(a.sessions->connect("127.0.0.1", Deadline::after_ms(kTestMs)).status(), Status::kParamInvalid);
  EXPECT_EQ(a.sessions->connect("no.such.host.invalid:5", Deadline::after_ms(kTestMs)).status(), Status::kNotFound);
  EXPECT_EQ(a.sessions->connect(a.id(), Deadline::after_ms(kTestMs)).status(), Status::kParamInvalid);
}

TEST(Session, TwoEnginesNeverShareAPort) {
  Node a;
  SessionOptions options;
  options.local_engine = a.id();
  Recorder events;
  const auto second = Sessions::create(options, events);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status(), Status::kAddrInUse);
  options.local_engine = "0.0.0.0:0";
  EXPECT_EQ(Sessions::create(options, events).status(), Status::kParamInvalid);
  options.local_engine = "[::]:0";
  EXPECT_EQ(Sessions::create(options, events).status(), Status::kParamInvalid);
  options.local_engine = "192.0.2.1:0";
  EXPECT_EQ(Sessions::create(options, events).status(), Status::kParamInvalid);
}

TEST(Session, APortCanBeTakenAgainAtOnceAfterARestart) {
  Node a;
  std::string id;
  InstanceId before;
  for (int round = 0; round < 5; ++round) {
    SessionOptions options;
    if (!id.empty()) options.local_engine = id;
    Node b(options);
    ASSERT_TRUE(b.sessions);
    id = b.id();
    const auto session = a.connect(b);
    ASSERT_TRUE(session);
    EXPECT_NE(session->hello().instance, before);
    before = session->hello().instance;
    ASSERT_TRUE(session->open_stream("tcp", Deadline::after_ms(kTestMs)).ok());  // leaves a TIME_WAIT behind
  }
}

TEST(Session, Ipv6) {
  SessionOptions options;
  options.local_engine = "[::1]:0";
  Node a(options), b(options);
  ASSERT_TRUE(a.sessions && b.sessions);
  EXPECT_EQ(a.id().substr(0, 6), "[::1]:");
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  EXPECT_TRUE(session->open_stream("tcp", Deadline::after_ms(kTestMs)).ok());
}

TEST(Session, DataStreamsAreBoundToTheSession) {
  Node a, b;
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  const auto stream = session->open_stream("tcp", Deadline::after_ms(kTestMs));
  ASSERT_TRUE(stream.ok()) << stream.error().to_string();
  ASSERT_TRUE(b.events.wait([](Recorder& r) ONESIDED_NO_TSA { return !r.streams_.empty(); }));
  EXPECT_EQ(b.events.streams_[0].first, "tcp");
  ASSERT_EQ(::send(stream->get(), "ping", 4, 0), 4);
  pollfd readable{b.events.streams_[0].second.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, static_cast<int>(kTestMs)), 1);
  char text[8] = {};
  EXPECT_EQ(::recv(readable.fd, text, sizeof text, 0), 4);
  EXPECT_EQ(b.events.accepted()->open_stream("tcp", Deadline::after_ms(100)).status(), Status::kUnsupported);
  session->close("done");
  ASSERT_TRUE(a.events.wait_lost(1));
  EXPECT_FALSE(session->open_stream("tcp", Deadline::after_ms(kTestMs)).ok());
}

TEST(Session, AnExhaustedQueueMakesSendersWaitNotFail) {
  Node a, b;
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  // 64 MiB through a queue of 8.
  for (std::uint64_t i = 1; i <= 64; ++i)
    ASSERT_TRUE(session->send(Notify{i, "n", std::string(1 << 20, 'x')}, {}, Deadline::after_ms(kTestMs)).ok());
  EXPECT_TRUE(b.events.wait_messages(64));
}

TEST(Session, ClosingAnEngineEndsConnectsUnderWay) {
  // A listener that accepts and never answers.
  Fd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(silent.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(silent.get(), 8), 0);
  ASSERT_EQ(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const auto id = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  Node a;
  const auto timed_out = a.sessions->connect(id, Deadline::after_ms(50));
  EXPECT_EQ(timed_out.status(), Status::kTimeout);
  std::thread caller([&] { EXPECT_EQ(a.sessions->connect(id, Deadline::never()).status(), Status::kClosed); });
  // The accept below returns once that connect is on its way (the first is in the queue before it).
  Fd(::accept(silent.get(), nullptr, nullptr));
  const Fd second(::accept(silent.get(), nullptr, nullptr));
  a.sessions->close();
  caller.join();
}

}  // namespace
}  // namespace onesided
