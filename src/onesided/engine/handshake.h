// Who may connect is decided in two small machines that know nothing of sockets: messages in, messages or an error
// out. So the rules stand in one place, and a fuzzer can throw ten thousand handshakes a second at them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/engine/auth.h"
#include "onesided/wire/handshake.h"
#include "onesided/wire/identity.h"

namespace onesided {

// What the kernel says of the process at the other end of a Unix socket (SO_PEERCRED). A value.
struct UnixPeer {
  std::uint32_t pid = 0;  // 0: in a pid namespace we cannot see
  std::uint32_t uid = 0;
};

// A session that both sides agreed on. A value.
struct OpenedSession {
  PeerHello peer;
  SessionToken token{};
  SessionKeys keys;
};

// What one side brings to a handshake. `unix_peer` is set when the connection is a Unix socket whose other end has our
// uid (the caller checked); otherwise the secret decides. A value; what it refers to must outlive the handshake.
struct HandshakeSelf {
  const PeerHello& hello;
  const std::string& secret;
  std::optional<UnixPeer> unix_peer;
};

// The listener's side of one connection. Confined to one thread.
class ListenerHandshake {
 public:
  struct Session {
    OpenedSession opened;
    std::vector<std::uint8_t> reply;  // ServerHello
  };
  struct Stream {
    SessionToken token{};
    std::string transport;
    std::vector<std::uint8_t> reply;  // StreamAccept
  };
  using Outcome = std::variant<Session, Stream>;
  // The stream key of the live session with this token that the peer dialed.
  using FindStreamKey = std::function<std::optional<Key>(const SessionToken&)>;

  explicit ListenerHandshake(HandshakeSelf self);

  // To be sent first.
  const std::vector<std::uint8_t>& greeting() const { return greeting_; }
  // The dialer's only message. An error refuses the connection; it may be told to the peer (refusal()).
  Result<Outcome> on_message(Bytes payload, const FindStreamKey& find_stream_key) const;

 private:
  Result<Session> open_session(const ClientHello& message, Bytes payload) const;
  Result<Stream> open_stream(const StreamOpen& message, Bytes payload, const FindStreamKey& find_stream_key) const;

  const HandshakeSelf self_;
  std::vector<std::uint8_t> greeting_;
};

// The dialer's side of one control connection. Confined to one thread.
class DialerHandshake {
 public:
  // `remote_id` as the caller gave it and `dialed`, the numeric address: the engine found there must be that one.
  DialerHandshake(HandshakeSelf self, std::string remote_id, std::string dialed);

  // Answers the greeting. Afterwards peer_instance() says who greets (proved by on_reply()).
  Result<std::vector<std::uint8_t>> on_greeting(Bytes payload);
  const InstanceId& peer_instance() const { return instance_; }
  Result<OpenedSession> on_reply(Bytes payload);

 private:
  const HandshakeSelf self_;
  const std::string remote_id_;
  const std::string dialed_;
  std::vector<std::uint8_t> greeting_;
  std::vector<std::uint8_t> client_hello_;
  InstanceId instance_;
};

// The dialer's side of a data stream. Confined to one thread.
class StreamHandshake {
 public:
  StreamHandshake(const SessionToken& token, const Key& streams, std::string transport);
  Result<std::vector<std::uint8_t>> on_greeting(Bytes payload);
  Result<void> on_reply(Bytes payload) const;

 private:
  const SessionToken token_;
  const Key streams_;
  const std::string transport_;
  std::vector<std::uint8_t> greeting_;
  std::vector<std::uint8_t> stream_open_;
};

// How a listener tells a dialer why it closes.
std::vector<std::uint8_t> refusal(const Error& why);

}  // namespace onesided
