// The one parser of engine addresses. Splitting at the first or at the last colon is wrong for IPv6, so no other code
// splits addresses; the accepted forms are listed below.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onesided/base/clock.h"
#include "onesided/base/result.h"

namespace onesided {

// A socket address of either family. A value.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  bool is_wildcard() const;
  // "127.0.0.1:5000", "[fe80::1%2]:5000": numeric, one spelling per address (an IPv4-mapped IPv6 address is written and
  // used as IPv4).
  std::string to_string() const;
};

// Host and port of an engine. A value.
//   "127.0.0.1:5000"  "127.0.0.1"  "host.name:5000"  "host.name"   an IPv4 address or a name, port optional
//   "[::1]:5000"  "[::1]"  "[fe80::1%lo]:5000"                      IPv6 in brackets, port and scope optional
//   "::1"  "2605:340::1"  "2001:db8::5000"                          two or more colons without brackets: an IPv6
//   address
//                                                                   WITHOUT a port, never a guess at one
// Everything else ("host:", ":5000", "h:99999", "", spaces, "[::1]5000") is PARAM_INVALID. A host name is kept as
// given.
struct Endpoint {
  std::string host;        // without brackets: "::1", "fe80::1%lo", "127.0.0.1", "node7"
  std::uint16_t port = 0;  // 0: none given, or "choose one"
  bool has_port = false;

  static Result<Endpoint> parse(std::string_view text);
  // The inverse of parse(): brackets where needed, the port when there is one.
  std::string to_string() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Addresses of an endpoint, best first, with its port. A numeric host is converted without blocking. A name is looked
// up with the system's resolver, which may block for many seconds: call it from a thread that may block. NOT_FOUND: no
// such host.
Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint);
// Converts numeric hosts only and never blocks. NOT_FOUND if the host is a name.
Result<SocketAddress> resolve_numeric(const Endpoint& endpoint);

}  // namespace onesided
