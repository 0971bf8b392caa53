// An engine's id is a promise that it, and nobody else, answers there. Both doors of an engine, TCP for remote
// peers and an abstract Unix socket for those of this host, are bound here, and only to the address that was asked for.
#pragma once

#include <string>

#include "onesided/base/private_fd.h"
#include "onesided/base/result.h"
#include "onesided/engine/endpoint.h"
#include "onesided/engine/handshake.h"

namespace onesided {

// The two listening sockets of an engine, non-blocking. A value that moves.
struct Listener {
  PrivateFd tcp;
  PrivateFd local;
  SocketAddress address;  // with the real port
  std::string engine_id;  // the host as given, with the real port

  // Port 0 or none: the kernel chooses. May ask the resolver and block. ADDR_IN_USE: another listener has the address
  // or its Unix name. PARAM_INVALID: malformed, a wildcard, or not an address of this host. NOT_FOUND: unknown name.
  static Result<Listener> bind(const std::string& local_engine);
};

// An abstract Unix address: it lives in the network namespace, like the port it stands for, and goes with the process.
SocketAddress unix_address(const SocketAddress& tcp);

// Who is at the other end of a connected Unix socket: nothing when it is not our uid.
std::optional<UnixPeer> same_user_peer(int unix_socket);

}  // namespace onesided
