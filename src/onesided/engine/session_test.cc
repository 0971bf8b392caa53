#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onesided/engine/session_fixture.h"

namespace onesided::testing {
namespace {

TEST(Session, PeersOnOneHostConnectOverTheUnixSocketAndIdentifyEachOther) {
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
    RegionUpdate update;
    update.epoch = i;
    if (i % 3 == 0) {
      Fd file(::memfd_create("passed", MFD_CLOEXEC));
      ASSERT_EQ(::pwrite(file.get(), &i, sizeof i, 0), static_cast<ssize_t>(sizeof i));
      fds.push_back(std::move(file));
      update.file_ids = {i};
    }
    ASSERT_TRUE(session->send(update, std::move(fds)).ok());
  }
  ASSERT_TRUE(b.events.wait_messages(200));
  MutexLock lock(b.events.mutex_);
  for (std::uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(std::get<RegionUpdate>(b.events.messages_[i]).epoch, i);
    if (i % 3 != 0) continue;
    std::uint64_t content = ~0ULL;
    ASSERT_EQ(::pread(b.events.fds_.front().get(), &content, sizeof content, 0), static_cast<ssize_t>(sizeof content));
    EXPECT_EQ(content, i);
    b.events.fds_.pop_front();
  }
  EXPECT_TRUE(b.events.fds_.empty());
}

TEST(Session, MessagesSentFromOnAcceptedArriveFirst) {
  Node a, b;
  b.events.first_message_ = TableOffer{4096, 7, 0};
  ASSERT_TRUE(a.connect(b));
  ASSERT_TRUE(a.events.wait_messages(1));
  EXPECT_EQ(std::get<TableOffer>(a.events.messages_[0]).lease_slot, 7u);
}

TEST(Session, ARefusalReachesTheCallerWithItsErrorText) {
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

TEST(Session, CloseSendsByeAfterQueuedMessages) {
  Node a, b;
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  for (std::uint64_t i = 1; i <= 20; ++i) ASSERT_TRUE(session->send(Notify{i, "n", std::string(100'000, 'x')}).ok());
  session->close("had enough");
  EXPECT_EQ(session->send(Heartbeat{}).status(), Status::kClosed);
  ASSERT_TRUE(b.events.wait_lost(1));
  EXPECT_EQ(b.events.lost(0).status(), Status::kNotConnected);
  EXPECT_THAT(b.events.lost(0).text(), ::testing::HasSubstr("had enough"));
  EXPECT_EQ(b.events.messages_.size(), 20u);
  ASSERT_TRUE(a.events.wait_lost(1));
  EXPECT_EQ(a.events.lost(0).status(), Status::kClosed);
  // Connects again: no state of the old session remains.
  EXPECT_TRUE(a.connect(b));
}

TEST(Session, ASecondConnectFindsTheFirst) {
  Node a, b;
  ASSERT_TRUE(a.connect(b));
  EXPECT_EQ(a.sessions->connect(b.id(), Deadline::after_ms(kTestMs)).status(), Status::kAlreadyConnected);
  const auto port = b.id().substr(b.id().find(':'));
  EXPECT_EQ(a.sessions->connect("localhost" + port, Deadline::after_ms(kTestMs)).status(), Status::kAlreadyConnected);
}

TEST(Session, BothSidesMayConnectAtTheSameTime) {
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

TEST(Session, ManyConcurrentConnectsMakeOneSession) {
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

TEST(Session, WithoutAListenerConnectFailsWithNotConnected) {
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

TEST(Session, APortCanBeReusedDirectlyAfterARestart) {
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

TEST(Session, AFullQueueBlocksSenders) {
  Node a, b;
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  // 64 MiB through a queue of 8.
  for (std::uint64_t i = 1; i <= 64; ++i)
    ASSERT_TRUE(session->send(Notify{i, "n", std::string(1 << 20, 'x')}, {}, Deadline::after_ms(kTestMs)).ok());
  EXPECT_TRUE(b.events.wait_messages(64));
}

TEST(Session, ClosingAnEngineEndsUnfinishedConnects) {
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
  // The accept below returns once that connect has started (the first is in the queue before it).
  const Fd first(::accept(silent.get(), nullptr, nullptr));
  const Fd second(::accept(silent.get(), nullptr, nullptr));
  a.sessions->close();
  caller.join();
}

TEST(Session, ALocalPeerThatSendsGarbageLosesItsSessionOnly) {
  Node a, b;
  ASSERT_TRUE(a.connect(b));
  auto hello = a.sessions->hello();
  hello.instance = InstanceId::random();
  RawPeer peer(b.id(), hello);
  const std::vector<std::uint8_t> nonsense = {2, 0xff, 0xff, 0xff};
  ASSERT_TRUE(peer.socket().send(FrameKind::kControl, nonsense).ok());
  ASSERT_TRUE(b.events.wait_lost(1));
  EXPECT_EQ(b.events.lost(0).status(), Status::kParamInvalid);
  ASSERT_TRUE(b.events.accepted(0)->send(TableSynced{1}).ok());
  EXPECT_TRUE(a.events.wait_messages(1));
}

TEST(Session, AWaitForCapacityEndsWhenSendingStops) {
  Node a, b;
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  Frozen frozen(b);
  const Notify notify{1, "n", std::string(1 << 20, 'x')};
  while (session->wait_for_capacity(Deadline::after_ms(std::int64_t{0})).ok()) ASSERT_TRUE(session->send(notify).ok());
  EXPECT_FALSE(session->drained());
  EXPECT_EQ(session->send(notify, {}, Deadline::after_ms(1)).status(), Status::kTimeout);
  std::thread sender([&] { EXPECT_EQ(session->send(notify).status(), Status::kCancelled); });
  std::thread waiter([&] { EXPECT_EQ(session->wait_for_capacity(Deadline::never()).status(), Status::kCancelled); });
  session->stop_sending(Error(Status::kCancelled, "enough"));
  sender.join();
  waiter.join();
  EXPECT_TRUE(session->alive());
  session->close("done");
  ASSERT_TRUE(a.events.wait_lost(1));
  EXPECT_EQ(a.events.lost(0).status(), Status::kClosed);
}

TEST(Session, ADrainedQueueIsReported) {
  Node a, b;
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  Frozen frozen(b);
  for (std::uint64_t i = 1; session->drained(); ++i)
    ASSERT_TRUE(session->send(Notify{i, "n", std::string(1 << 20, 'x')}).ok());
  const int before = [&] {
    MutexLock lock(a.events.mutex_);
    return a.events.drained_;
  }();
  frozen.resume();
  EXPECT_TRUE(a.events.wait([&](Recorder& r) ONESIDED_NO_TSA { return r.drained_ > before; }));
  EXPECT_TRUE(session->drained());
}

// If a peer sends requests and does not read, the owner's queued answers must not grow without limit.
TEST(Session, RequestsOfAPeerThatDoesNotReadAnswersAreNotRead) {
  Node a, b;
  b.events.echo_ = true;
  RawPeer peer(b.id(), a.sessions->hello());
  constexpr std::uint64_t kMessages = 512;  // of 64 KiB
  const std::string text(64 << 10, 'x');
  std::uint64_t said = 0;
  while (said < kMessages) {
    const auto sent = peer.say(Notify{said + 1, "n", text});
    ASSERT_TRUE(sent.ok());
    ++said;
    // Messages that are not sent within this time are not read by the owner; a slow machine only ends the loop sooner.
    for (bool all = *sent; !all;) {
      pollfd writable{peer.socket().fd(), POLLOUT, 0};
      if (::poll(&writable, 1, 500) != 1) break;
      const auto flushed = peer.socket().flush();
      ASSERT_TRUE(flushed.ok());
      all = *flushed;
    }
    if (peer.socket().queued_bytes() > 0) break;
  }
  EXPECT_LT(said, kMessages) << "all requests were read although no answer was read";
  // Its requests are read again as soon as it reads.
  for (std::uint64_t heard = 1; heard <= said; ++heard) {
    ASSERT_TRUE(peer.socket().flush().ok());
    const auto message = decode_control(peer.next().payload);
    ASSERT_TRUE(message.ok());
    ASSERT_EQ(std::get<Notify>(*message).sequence, heard);
  }
}

// An instance is public, and a peer names its own instance.
TEST(Session, AClaimedInstanceDoesNotDisturbItsOwner) {
  SessionOptions options;
  options.secret = kSecret;
  Node a(options), b(options);
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  const auto accepted = b.events.accepted(0);
  for (const bool local : {true, false}) RawPeer impostor(b.id(), a.sessions->hello(), local);
  // Both sessions have started and ended.
  ASSERT_TRUE(b.events.wait_lost(2));
  EXPECT_TRUE(accepted->alive());
  ASSERT_TRUE(session->send(Notify{1, "still", "here"}).ok());
  EXPECT_TRUE(b.events.wait_messages(1));
  EXPECT_TRUE(a.events.lost_.empty());
}

}  // namespace
}  // namespace onesided::testing
