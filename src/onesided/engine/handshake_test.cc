#include "onesided/engine/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "onesided/wire/frame.h"

namespace onesided {
namespace {

using ::testing::HasSubstr;

const std::string kSecret = "sixteen bytes or more";
const std::string kOtherSecret = "sixteen bytes or else";
const std::string kNoSecret;

PeerHello hello_of(const std::string& id) {
  PeerHello hello;
  hello.protocol_version = kProtocolVersion;
  hello.engine_id = id;
  hello.bound_address = id;
  hello.instance = InstanceId::random();
  hello.pid = 1;
  hello.transports = {"tcp"};
  return hello;
}

struct Outcome {
  Result<OpenedSession> dialer = Error(Status::kFailed, "not reached");
  Result<OpenedSession> listener = Error(Status::kFailed, "not reached");
};

const auto kNoStreams = [](const SessionToken&) -> std::optional<Key> { return std::nullopt; };

// Two handshakes exchange messages; a test may change the messages in between.
struct Pair {
  PeerHello dialer_hello = hello_of("10.0.0.1:1");
  PeerHello listener_hello = hello_of("10.0.0.2:2");
  std::string dialer_secret = kSecret;
  std::string listener_secret = kSecret;
  std::optional<UnixPeer> unix_peer;
  std::string remote_id = "10.0.0.2:2";
  std::function<void(std::vector<std::uint8_t>&)> change_greeting, change_client, change_reply;

  Outcome run() {
    Outcome out;
    const ListenerHandshake listener({listener_hello, listener_secret, unix_peer});
    DialerHandshake dialer({dialer_hello, dialer_secret, unix_peer}, remote_id, "10.0.0.2:2");
    auto greeting = listener.greeting();
    if (change_greeting) change_greeting(greeting);
    auto client = dialer.on_greeting(greeting);
    if (!client) {
      out.dialer = client.error();
      return out;
    }
    if (change_client) change_client(*client);
    auto accepted = listener.on_message(*client, kNoStreams);
    if (!accepted) {
      out.listener = accepted.error();
      out.dialer = dialer.on_reply(refusal(accepted.error()));
      return out;
    }
    auto& session = std::get<ListenerHandshake::Session>(*accepted);
    out.listener = session.opened;
    if (change_reply) change_reply(session.reply);
    out.dialer = dialer.on_reply(session.reply);
    return out;
  }
};

TEST(Handshake, SameSecretOpensASessionWithTheSameKeysOnBothSides) {
  Pair pair;
  const auto out = pair.run();
  ASSERT_TRUE(out.dialer.ok()) << out.dialer.error().to_string();
  ASSERT_TRUE(out.listener.ok());
  EXPECT_EQ(out.dialer->token, out.listener->token);
  EXPECT_EQ(out.dialer->keys.streams, out.listener->keys.streams);
  EXPECT_EQ(out.dialer->keys.to_dialer, out.listener->keys.to_dialer);
  EXPECT_NE(out.dialer->keys.to_dialer, out.dialer->keys.to_listener);
  EXPECT_EQ(out.dialer->peer, pair.listener_hello);
  EXPECT_EQ(out.listener->peer, pair.dialer_hello);
  EXPECT_NE(pair.run().dialer->keys.streams, out.dialer->keys.streams) << "keys must be new each time";
}

TEST(Handshake, WithoutTheSecretNothingIsDisclosed) {
  for (const auto& [dialer, listener] : {std::pair(kOtherSecret, kSecret), std::pair(kSecret, kNoSecret),
                                         std::pair(kNoSecret, kSecret), std::pair(kNoSecret, kNoSecret)}) {
    Pair pair;
    pair.dialer_secret = dialer;
    pair.listener_secret = listener;
    const auto out = pair.run();
    EXPECT_EQ(out.dialer.status(), Status::kAuthFailed);
    EXPECT_THAT(out.dialer.error().text(), HasSubstr("auth_secret_file"));
    EXPECT_FALSE(out.listener.ok());
  }
}

TEST(Handshake, OverAUnixSocketTheKernelsDataReplaceThePeers) {
  Pair pair;
  pair.unix_peer = UnixPeer{4711, 1000};
  pair.dialer_secret = pair.listener_secret = kNoSecret;
  const auto out = pair.run();
  ASSERT_TRUE(out.dialer.ok() && out.listener.ok());
  EXPECT_EQ(out.listener->peer.pid, 4711u);
  EXPECT_EQ(out.listener->peer.uid, 1000u);
  EXPECT_EQ(out.dialer->keys.streams, out.listener->keys.streams);
}

// Field case C05.
TEST(Handshake, AnotherVersionIsNamedOnBothSides) {
  Pair pair;
  pair.dialer_hello.protocol_version = 9;
  const auto out = pair.run();
  for (const auto& side : {out.dialer, out.listener}) {
    EXPECT_EQ(side.status(), Status::kUnsupported);
    EXPECT_THAT(side.error().text(), HasSubstr("version 9"));
    EXPECT_THAT(side.error().text(), HasSubstr(std::to_string(kProtocolVersion)));
  }
}

TEST(Handshake, TheWrongEngineBehindAnAddressIsNamed) {
  Pair pair;
  pair.listener_hello = hello_of("10.0.0.3:3");
  const auto out = pair.run();
  EXPECT_EQ(out.dialer.status(), Status::kNotConnected);
  EXPECT_THAT(out.dialer.error().text(), HasSubstr("10.0.0.2:2"));
  EXPECT_THAT(out.dialer.error().text(), HasSubstr("10.0.0.3:3"));
}

TEST(Handshake, AnEngineDoesNotConnectToItself) {
  Pair pair;
  pair.dialer_hello.instance = pair.listener_hello.instance;
  EXPECT_EQ(pair.run().dialer.status(), Status::kParamInvalid);
}

TEST(Handshake, AnyChangedByteIsDetected) {
  Pair plain;
  const ListenerHandshake sample({plain.listener_hello, plain.listener_secret, std::nullopt});
  std::mt19937 random(3);
  // T: dialer -> attacker -> listener; one byte of one message differs.
  for (int round = 0; round < 600; ++round) {
    Pair pair;
    const auto flip = [&](std::vector<std::uint8_t>& bytes) {
      bytes[random() % bytes.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
    };
    if (round % 3 == 0) pair.change_greeting = flip;
    if (round % 3 == 1) pair.change_client = flip;
    if (round % 3 == 2) pair.change_reply = flip;
    const auto out = pair.run();
    EXPECT_FALSE(out.dialer.ok()) << "round " << round;
  }
}

TEST(Handshake, AProofCannotBeReplayedToAnotherConnection) {
  const PeerHello server = hello_of("10.0.0.2:2");
  const PeerHello client = hello_of("10.0.0.1:1");
  const ListenerHandshake first({server, kSecret, std::nullopt});
  const ListenerHandshake second({server, kSecret, std::nullopt});
  DialerHandshake dialer({client, kSecret, std::nullopt}, "10.0.0.2:2", "10.0.0.2:2");
  const auto message = dialer.on_greeting(first.greeting());
  ASSERT_TRUE(message.ok());
  EXPECT_TRUE(first.on_message(*message, kNoStreams).ok());
  EXPECT_EQ(second.on_message(*message, kNoStreams).status(), Status::kAuthFailed);
}

TEST(Handshake, AProofCannotBeReflected) {
  // The attacker has no secret. It answers a dialer with the dialer's own proof, and with one from the dialer's own
  // listener, obtained by forwarding the greeting.
  const PeerHello victim = hello_of("10.0.0.1:1");
  const ListenerHandshake victims_listener({victim, kSecret, std::nullopt});
  DialerHandshake victims_dialer({victim, kSecret, std::nullopt}, "10.0.0.2:2", "10.0.0.2:2");
  const auto message = victims_dialer.on_greeting(victims_listener.greeting());
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(victims_listener.on_message(*message, kNoStreams).status(), Status::kParamInvalid) << "itself";
  ServerHello forged;
  forged.hello = hello_of("10.0.0.2:2");
  forged.hello.instance = victim.instance;
  forged.proof = std::get<ClientHello>(*decode_handshake(*message)).proof;
  EXPECT_EQ(victims_dialer.on_reply(encode_handshake(forged)).status(), Status::kAuthFailed);
}

TEST(Handshake, StreamsNeedTheKeyOfTheirSession) {
  Pair pair;
  const auto session = *pair.run().listener;
  const ListenerHandshake listener({pair.listener_hello, kSecret, std::nullopt});
  const auto find = [&](const SessionToken& token) {
    return token == session.token ? std::optional(session.keys.streams) : std::nullopt;
  };
  const auto attempt = [&](const SessionToken& token, const Key& key, const ListenerHandshake& at) -> Status {
    StreamHandshake dialer(token, key, "tcp");
    const auto open = dialer.on_greeting(listener.greeting());
    const auto answer = at.on_message(*open, find);
    if (!answer) return answer.status();
    return dialer.on_reply(std::get<ListenerHandshake::Stream>(*answer).reply).status();
  };
  EXPECT_EQ(attempt(session.token, session.keys.streams, listener), Status::kSuccess);
  EXPECT_EQ(attempt(session.token, session.keys.to_dialer, listener), Status::kAuthFailed);
  EXPECT_EQ(attempt(SessionToken{}, session.keys.streams, listener), Status::kAuthFailed);
  const ListenerHandshake later({pair.listener_hello, kSecret, std::nullopt});
  EXPECT_EQ(attempt(session.token, session.keys.streams, later), Status::kAuthFailed) << "replayed";
}

TEST(Handshake, TenThousandCorruptedHandshakesEndInErrors) {
  std::mt19937_64 random(20261130);
  for (int round = 0; round < 10'000; ++round) {
    Pair pair;
    if (round % 2 == 0) pair.unix_peer = UnixPeer{1, 1};
    const auto garble = [&](std::vector<std::uint8_t>& bytes) {
      switch (random() % 4) {
        case 0: bytes.resize(random() % (bytes.size() + 1)); break;
        case 1: bytes.resize(random() % kMaxHandshakePayload, static_cast<std::uint8_t>(random())); break;
        case 2:
          for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
          break;
        default: bytes[0] = static_cast<std::uint8_t>(random() % 8);
      }
    };
    if (round % 3 == 0) pair.change_greeting = garble;
    if (round % 3 == 1) pair.change_client = garble;
    if (round % 3 == 2) pair.change_reply = garble;
    const auto out = pair.run();
    if (!out.dialer.ok()) continue;
    EXPECT_EQ(out.dialer->keys.streams, out.listener->keys.streams);
  }
}

TEST(Auth, PartsCannotBeShiftedAgainstEachOther) {
  const std::vector<std::uint8_t> ab = {'a', 'b'}, a = {'a'}, b = {'b'}, none;
  const Key key{};
  EXPECT_NE(keyed_hash(key, "x", {ab, none}), keyed_hash(key, "x", {a, b}));
  EXPECT_NE(keyed_hash(key, "xa", {b}), keyed_hash(key, "x", {ab}));
  EXPECT_TRUE(equal_secret(ab, ab));
  EXPECT_FALSE(equal_secret(ab, a));
}

}  // namespace
}  // namespace onesided
