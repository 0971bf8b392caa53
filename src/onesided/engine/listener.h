// The listening sockets of an engine: TCP for remote peers and an abstract Unix socket for peers on this host. Both are
// bound exclusively and only to the requested address, so that no other process answers under the engine's id.
#pragma once

#include <string>

#include "onesided/base/private_fd.h"
#include "onesided/base/result.h"
#include "onesided/engine/endpoint.h"
#include "onesided/engine/handshake.h"

namespace onesided {

// The two listening sockets of an engine, non-blocking. A movable value.
struct Listener {
  PrivateFd tcp;
  PrivateFd local;
  SocketAddress address;  // with the actual port
  std::string engine_id;  // the host as given, with the actual port

  // With port 0 or no port the kernel chooses one. May block in the resolver. ADDR_IN_USE: another listener has the
  // address or its Unix name. PARAM_INVALID: malformed, a wildcard, or not an address of this host. NOT_FOUND: unknown
  // name.
  static Result<Listener> bind(const std::string& local_engine);
};

// An abstract Unix address: like the port, it belongs to the network namespace and is freed when the process ends.
SocketAddress unix_address(const SocketAddress& tcp);

// The process at the other end of a connected Unix socket, or std::nullopt if it has another uid.
std::optional<UnixPeer> same_user_peer(int unix_socket);

}  // namespace onesided
