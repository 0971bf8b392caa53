#include "onesided/engine/listener.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace onesided {
namespace {

// Enough for a burst of peers; the kernel limits it to net.core.somaxconn.
constexpr int kBacklog = 1024;
// If another program has bound the Unix name of the port that the kernel chose, another port is tried.
constexpr int kPortTries = 64;

Error bind_error(const std::string& what, int error) {
  switch (error) {
    case EADDRINUSE:
      return Error(Status::kAddrInUse,
                   fmt::format("{} is in use by another listener; choose another port, or port 0", what));
    case EADDRNOTAVAIL: return Error(Status::kParamInvalid, fmt::format("{} is not an address of this host", what));
    case EACCES: return Error(Status::kParamInvalid, fmt::format("{} needs privileges that this process lacks", what));
    case EMFILE:
    case ENFILE: return Error(Status::kResourceExhausted, fmt::format("{}: no descriptor left", what));
    default: return Error(Status::kFailed, fmt::format("{}: {}", what, std::strerror(error)));
  }
}

Result<Fd> listen_on(const SocketAddress& address, const std::string& what, bool reuse) {
  Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return bind_error(what, errno);
  const int on = 1;
  // With an explicit port, an earlier process's connections in TIME_WAIT must not block a restart. Linux still refuses
  // two listeners, at bind() or, if both bind first, at listen(). With port 0 the option would let the kernel pick a
  // bound port.
  if (reuse) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(socket.get(), address.get(), address.length) != 0) return bind_error(what, errno);
  // Connections inherit the option: those that outlive a killed engine must not block a new engine on the same port.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::listen(socket.get(), kBacklog) != 0) return bind_error(what, errno);
  return socket;
}

Result<SocketAddress> bound_address(const Fd& socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    return bind_error("getsockname", errno);
  return address;
}

}  // namespace

SocketAddress unix_address(const SocketAddress& tcp) {
  const std::string name = "onesided/" + tcp.to_string();
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  ONESIDED_CHECK(name.size() + 1 < sizeof un.sun_path, "unix name '{}' is too long", name);
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  SocketAddress out;
  std::memcpy(&out.storage, &un, sizeof un);
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return out;
}

std::optional<UnixPeer> same_user_peer(int unix_socket) {
  ucred who{};
  socklen_t length = sizeof who;
  if (::getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return std::nullopt;
  if (who.uid != ::geteuid()) return std::nullopt;
  return UnixPeer{static_cast<std::uint32_t>(who.pid), who.uid};
}

Result<Listener> Listener::bind(const std::string& local_engine) {
  ONESIDED_TRY_ASSIGN(endpoint, Endpoint::parse(local_engine));
  ONESIDED_TRY_ASSIGN(addresses, resolve(endpoint));
  const SocketAddress wanted = addresses.front();
  if (wanted.is_wildcard()) {
    return Error(Status::kParamInvalid,
                 fmt::format("engine address '{}' means every interface; give the one address at which peers reach it",
                             local_engine));
  }
  Listener out;
  for (int attempt = 0; attempt < kPortTries; ++attempt) {
    ONESIDED_TRY_ASSIGN(tcp, listen_on(wanted, fmt::format("engine address {}", local_engine), wanted.port() != 0));
    ONESIDED_TRY_ASSIGN(address, bound_address(tcp));
    auto local =
        listen_on(unix_address(address), fmt::format("Unix socket '@onesided/{}'", address.to_string()), false);
    if (!local && local.status() == Status::kAddrInUse && wanted.port() == 0) continue;
    if (!local) return local.error();
    out.tcp = PrivateFd(std::move(tcp));
    out.local = PrivateFd(std::move(*local));
    out.address = address;
    endpoint.port = address.port();
    endpoint.has_port = true;
    out.engine_id = endpoint.to_string();
    return out;
  }
  return Error(Status::kAddrInUse,
               fmt::format("engine address {}: none of {} ports the kernel chose had a free Unix name", local_engine,
                           kPortTries));
}

}  // namespace onesided
