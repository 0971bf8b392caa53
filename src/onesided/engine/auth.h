// Mutual proof of the shared secret between peers on different hosts; the secret itself is never sent. Each proof names
// its direction and covers both fresh nonces and both hellos, so it cannot be replayed, reflected or moved to another
// connection. The session's keys are derived from the same transcript. docs/security.md states the resulting
// guarantees.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/wire/handshake.h"

namespace onesided {

using Key = std::array<std::uint8_t, 32>;
using Bytes = std::span<const std::uint8_t>;

inline constexpr std::size_t kMinSecretBytes = 16;
inline constexpr std::size_t kMaxSecretBytes = 4096;

// HMAC-SHA256 over a label and parts, each preceded by its length, so that two different lists of parts never give the
// same input.
Key keyed_hash(Bytes key, std::string_view label, std::initializer_list<Bytes> parts);
// Compares in constant time.
bool equal_secret(Bytes a, Bytes b);

// Keys of one session. A value.
struct SessionKeys {
  Key to_listener{};  // seals control frames dialer -> listener (TCP only)
  Key to_dialer{};    // and back
  Key streams{};      // proves that a data stream belongs to the session

  static SessionKeys derive(Bytes master);
};

// Proofs of the three exchanges. `greeting` and the other arguments are the encoded messages as sent. Of the message
// that carries the proof, everything except the proof is covered.
Proof client_proof(std::string_view secret, Bytes greeting, Bytes client_hello);
Proof server_proof(std::string_view secret, Bytes greeting, Bytes client_hello, Bytes server_hello);
Key session_master(std::string_view secret, Bytes greeting, Bytes client_hello, Bytes server_hello);
Proof stream_open_proof(const Key& streams, Bytes greeting, Bytes stream_open);
Proof stream_accept_proof(const Key& streams, Bytes greeting, Bytes stream_open);

// Reads the shared secret from a file: 16 bytes to 4 KiB after trailing line ends are removed. The file must belong to
// this user or root and must not be accessible to group and others. Errors: PARAM_INVALID or NOT_FOUND, with the file's
// name and what to do.
Result<std::string> read_secret_file(const std::string& path);

}  // namespace onesided
