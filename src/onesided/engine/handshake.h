// The handshake that decides which peers may connect, as state machines without sockets: a message in, a message or an
// error out. The rules are in one place, and a fuzzer can run ten thousand handshakes per second.
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

// The process at the other end of a Unix socket, as reported by the kernel (SO_PEERCRED). A value.
struct UnixPeer {
  std::uint32_t pid = 0;  // 0: in a pid namespace that is not visible here
  std::uint32_t uid = 0;
};

// A session that both sides accepted. A value.
struct OpenedSession {
  PeerHello peer;
  SessionToken token{};
  SessionKeys keys;
};

// One side's input to a handshake. `unix_peer` is set if the connection is a Unix socket whose other end has this
// process's uid (checked by the caller); otherwise the peer must prove the secret. A value; what it refers to must
// outlive the handshake.
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
  // Finds the stream key of the open session with this token that the peer dialed.
  using FindStreamKey = std::function<std::optional<Key>(const SessionToken&)>;

  explicit ListenerHandshake(HandshakeSelf self);

  // The first message to send.
  const std::vector<std::uint8_t>& greeting() const { return greeting_; }
  // Handles the dialer's only message. An error refuses the connection; it may be sent to the peer (refusal()).
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
  // `remote_id` is the id that the caller gave, `dialed` the numeric address; the engine that answers must have this
  // address.
  DialerHandshake(HandshakeSelf self, std::string remote_id, std::string dialed);

  // Answers the greeting. Afterwards peer_instance() is the instance that sent it, which on_reply() proves.
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

// The message with which a listener tells a dialer why it closes the connection.
std::vector<std::uint8_t> refusal(const Error& why);

}  // namespace onesided
