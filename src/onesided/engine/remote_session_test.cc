#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onesided/engine/session_fixture.h"

namespace onesided::testing {
namespace {

// Peers "on other hosts": the Unix socket is switched off.
SessionOptions remote(const std::string& secret = kSecret) {
  SessionOptions options;
  options.secret = secret;
  options.local_socket = false;
  return options;
}

TEST(RemoteSession, PeersWithTheSameSecretConnect) {
  Node a(remote()), b(remote());
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  EXPECT_FALSE(session->peer().local);
  EXPECT_EQ(session->peer().pid, 0);
  for (std::uint64_t i = 1; i <= 100; ++i) ASSERT_TRUE(session->send(Notify{i, "n", std::string(i * 1000, 'x')}).ok());
  ASSERT_TRUE(b.events.wait_messages(100));
  for (std::uint64_t i = 1; i <= 100; ++i) EXPECT_EQ(std::get<Notify>(b.events.messages_[i - 1]).sequence, i);
  ASSERT_TRUE(b.events.accepted()->send(TableSynced{5}).ok());
  EXPECT_TRUE(a.events.wait_messages(1));
  EXPECT_TRUE(session->open_stream("tcp", Deadline::after_ms(kTestMs)).ok());
  std::vector<Fd> fds;
  fds.emplace_back(::memfd_create("x", MFD_CLOEXEC));
  EXPECT_EQ(session->send(RegionUpdate{}, std::move(fds)).status(), Status::kParamInvalid);
}

TEST(RemoteSession, PeersWithoutTheSameSecretAreRefusedWithAClearError) {
  Node a(remote());
  for (const std::string secret : {"", "another secret of enough bytes"}) {
    Node b(remote(secret));
    for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      const auto session = from->sessions->connect(to->id(), Deadline::after_ms(kTestMs));
      ASSERT_FALSE(session.ok());
      EXPECT_EQ(session.status(), Status::kAuthFailed);
      EXPECT_THAT(session.error().text(), ::testing::HasSubstr("auth_secret_file"));
    }
  }
  EXPECT_TRUE(a.events.accepted_.empty());
}

TEST(RemoteSession, APeerWithoutHeartbeatsIsLostAfterFourIntervals) {
  auto options = remote();
  options.heartbeat_ms = 20;
  Node a(options), b(options);
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  ASSERT_TRUE(b.events.accepted());
  // As if the host had lost power: its sockets remain open and send nothing.
  Frozen frozen(b);
  ASSERT_TRUE(a.events.wait_lost(1));
  EXPECT_EQ(a.events.lost(0).status(), Status::kPeerLost);
  EXPECT_THAT(a.events.lost(0).text(), ::testing::HasSubstr("has sent nothing for 4 heartbeat intervals"));
}

TEST(RemoteSession, HeartbeatsKeepAnIdleSessionAlive) {
  auto options = remote();
  options.heartbeat_ms = 200;
  Node a(options), b(options);
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  ASSERT_TRUE(b.events.accepted());
  // Longer than the time without heartbeats that would end the session.
  EXPECT_FALSE(a.events.reports_within(1300));
  EXPECT_TRUE(session->alive());
}

// Connects like any program could and sends what the test specifies.
class RawClient {
 public:
  explicit RawClient(const std::string& id) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto address = *resolve_numeric(*Endpoint::parse(id));
    EXPECT_EQ(::connect(socket_.get(), address.get(), address.length), 0);
  }
  void say(std::span<const std::uint8_t> bytes) {
    (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Reads until the listener closes; if it does not close, the test times out.
  std::size_t hear_all() {
    std::size_t total = 0;
    char buffer[4096];
    while (true) {
      const auto got = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (got <= 0) return total;
      total += static_cast<std::size_t>(got);
    }
  }
  void hang_up() { ::shutdown(socket_.get(), SHUT_WR); }

 private:
  Fd socket_;
};

TEST(RemoteSession, InvalidMessagesEndTheirOwnConnectionOnly) {
  auto options = remote();
  options.handshake_ms = 200;
  Node a(remote()), b(options);
  const auto session = a.connect(b);
  ASSERT_TRUE(session);
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    RawClient client(b.id());
    std::vector<std::uint8_t> bytes;
    if (round % 3 == 0) {
      bytes.resize(random() % 300);
      for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    } else if (round % 3 == 1) {
      const std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
      bytes.assign(http.begin(), http.end());
    } else {
      // A well-formed frame with a well-formed but false message.
      const auto payload = encode_handshake(StreamOpen{{}, {}, "tcp", {}});
      const auto header = encode_frame_header({FrameKind::kHandshake, 0, static_cast<std::uint32_t>(payload.size())});
      bytes.assign(header.begin(), header.end());
      bytes.insert(bytes.end(), payload.begin(), payload.end());
    }
    client.say(bytes);
    client.hang_up();
    EXPECT_LT(client.hear_all(), 4096u) << "only greeting and refusal are sent";
  }
  // A client that sends nothing is dropped after handshake_ms.
  RawClient silent(b.id());
  EXPECT_GT(silent.hear_all(), 0u);
  ASSERT_TRUE(session->send(Notify{1, "still", "here"}).ok());
  EXPECT_TRUE(b.events.wait_messages(1));
  EXPECT_TRUE(b.events.streams_.empty());
  EXPECT_EQ(b.events.accepted_.size(), 1u);
}

}  // namespace
}  // namespace onesided::testing
