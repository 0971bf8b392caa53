// The messages that authenticate a connection. A handshake frame contains one of them. Proofs are MACs over all earlier
// messages, so the codec also returns the bytes that a proof covers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/wire/identity.h"

namespace onesided {

using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;
using SessionToken = std::array<std::uint8_t, 16>;

// Listener -> dialer, first on every connection. Contains nothing about memory or addresses.
struct Greeting {
  InstanceId instance;
  Nonce nonce{};
  bool has_secret = false;  // remote peers can be authenticated here
  friend bool operator==(const Greeting&, const Greeting&) = default;
};

// Dialer -> listener: open a control session.
struct ClientHello {
  Nonce nonce{};
  PeerHello hello;
  Proof proof{};  // zeros over a Unix socket
  friend bool operator==(const ClientHello&, const ClientHello&) = default;
};

// Listener -> dialer: the session is open. `key` is random over a Unix socket, zeros over TCP, where both derive it.
struct ServerHello {
  SessionToken token{};
  std::array<std::uint8_t, 32> key{};
  PeerHello hello;
  Proof proof{};
  friend bool operator==(const ServerHello&, const ServerHello&) = default;
};

// Listener -> dialer, instead of ServerHello or StreamAccept.
struct Refusal {
  Status status = Status::kFailed;
  std::string text;
  friend bool operator==(const Refusal&, const Refusal&) = default;
};

// Dialer -> listener: this connection is a data stream of an open session.
struct StreamOpen {
  SessionToken token{};
  Nonce nonce{};
  std::string transport;
  Proof proof{};
  friend bool operator==(const StreamOpen&, const StreamOpen&) = default;
};

struct StreamAccept {
  Proof proof{};
  friend bool operator==(const StreamAccept&, const StreamAccept&) = default;
};

using HandshakeMessage = std::variant<Greeting, ClientHello, ServerHello, Refusal, StreamOpen, StreamAccept>;

// Always at most kMaxHandshakePayload bytes: longer texts are truncated, and create() checks the limits of names.
std::vector<std::uint8_t> encode_handshake(const HandshakeMessage& message);
Result<HandshakeMessage> decode_handshake(std::span<const std::uint8_t> payload);
// The part of an encoded ClientHello, ServerHello, StreamOpen or StreamAccept that its proof covers: all bytes except
// the proof.
std::span<const std::uint8_t> proven_part(std::span<const std::uint8_t> encoded);

inline constexpr std::size_t kMaxEngineIdBytes = 512;
inline constexpr std::size_t kMaxTransportNames = 16;
inline constexpr std::size_t kMaxTransportNameBytes = 32;

}  // namespace onesided
