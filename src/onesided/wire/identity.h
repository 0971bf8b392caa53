// The identity of engines and hosts. An address does not identify an engine: a restarted process may listen on the same
// port, and containers may share a boot id. Peers therefore introduce themselves with an instance and with data that
// distinguish hosts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace onesided {

// From the kernel's generator; cannot fail once the system is up.
void fill_random(std::span<std::uint8_t> out);

// 16 random bytes, generated when an engine is created; unique. A value.
struct InstanceId {
  std::array<std::uint8_t, 16> bytes{};

  static InstanceId random();
  std::string to_string() const;  // 32 hex digits
  friend auto operator<=>(const InstanceId&, const InstanceId&) = default;
};

// The host of a process, for the choice of transports. Hints only: no trust depends on them. A value.
struct HostIdentity {
  std::array<std::uint8_t, 16> boot_id{};  // of the kernel: equal on one host, also between containers
  std::uint64_t net_namespace = 0;         // inode numbers, 0 when unknown
  std::uint64_t pid_namespace = 0;

  static HostIdentity current();
  friend bool operator==(const HostIdentity&, const HostIdentity&) = default;
};

// How an engine introduces itself to a peer. A value.
struct PeerHello {
  std::uint16_t protocol_version = 0;
  std::string engine_id;      // "127.0.0.1:40213", as connect() takes it
  std::string bound_address;  // the numeric address it listens on, in the same form
  InstanceId instance;
  std::uint32_t pid = 0;  // as seen by the peer itself; over a Unix socket replaced by the kernel's data
  std::uint32_t uid = 0;
  HostIdentity host;
  std::vector<std::string> transports;  // offered, best first: "shm", "cma", "tcp"
  std::uint32_t tcp_streams = 0;        // data streams that it opens to a peer
  std::uint32_t heartbeat_ms = 0;       // interval of its heartbeats over TCP
  std::uint64_t max_notify_bytes = 0;   // largest notification it accepts

  friend bool operator==(const PeerHello&, const PeerHello&) = default;
};

// Version of all messages on a connection. Peers must have the same version.
inline constexpr std::uint16_t kProtocolVersion = 1;

}  // namespace onesided
