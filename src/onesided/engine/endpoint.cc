#include "onesided/engine/endpoint.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

namespace onesided {
namespace {

constexpr std::size_t kMaxHostBytes = 255;

Error invalid(std::string_view text, std::string_view why) {
  return Error(Status::kParamInvalid,
               fmt::format("engine address '{}': {}; write 'ip:port', '[ipv6]:port' or 'host:port'", text, why));
}

// inet_pton for text that may contain zero bytes, at which a C string would end.
bool read_address(int family, std::string_view text, void* into) {
  return text.find('\0') == std::string_view::npos && ::inet_pton(family, std::string(text).c_str(), into) == 1;
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint32_t port = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (failure != std::errc() || end != text.data() + text.size() || text.empty() || port > 65535) return std::nullopt;
  return static_cast<std::uint16_t>(port);
}

// Accepts what RFC 1123 and common practice allow, so that "a b", "x/y" and control bytes are refused here and not by a
// resolver.
bool plausible_name(std::string_view host) {
  if (host.empty() || host.size() > kMaxHostBytes || host.front() == '-' || host.front() == '.') return false;
  // "1.2.3" and "300.0.0.1" are refused: some resolvers read the first as 1.2.0.3. An IPv4 address has four numbers.
  in_addr ignored{};
  const bool digits = std::ranges::all_of(host, [](unsigned char c) { return (c >= '0' && c <= '9') || c == '.'; });
  if (digits) return read_address(AF_INET, host, &ignored);
  return std::ranges::all_of(host, [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
           c == '_';
  });
}

// "::1" or "fe80::1%lo".
std::optional<SocketAddress> parse_ipv6(std::string_view host) {
  const auto percent = host.find('%');
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  if (!read_address(AF_INET6, host.substr(0, percent), &in6.sin6_addr)) return std::nullopt;
  if (percent != std::string_view::npos) {
    const std::string scope(host.substr(percent + 1));
    if (scope.empty() || scope.size() >= IF_NAMESIZE) return std::nullopt;
    in6.sin6_scope_id = ::if_nametoindex(scope.c_str());
    if (in6.sin6_scope_id == 0) {
      const auto [end, failure] = std::from_chars(scope.data(), scope.data() + scope.size(), in6.sin6_scope_id);
      if (failure != std::errc() || end != scope.data() + scope.size() || in6.sin6_scope_id == 0) return std::nullopt;
    }
  }
  SocketAddress out;
  if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
    sockaddr_in in4{};
    in4.sin_family = AF_INET;
    std::memcpy(&in4.sin_addr, in6.sin6_addr.s6_addr + 12, 4);
    std::memcpy(&out.storage, &in4, sizeof in4);
    out.length = sizeof in4;
    return out;
  }
  std::memcpy(&out.storage, &in6, sizeof in6);
  out.length = sizeof in6;
  return out;
}

// Checks the spelling of an address only, not whether its interface exists on this host.
bool plausible_ipv6(std::string_view host) {
  const auto percent = host.find('%');
  in6_addr ignored{};
  if (!read_address(AF_INET6, host.substr(0, percent), &ignored)) return false;
  if (percent == std::string_view::npos) return true;
  const auto scope = host.substr(percent + 1);
  return !scope.empty() && scope.size() < IF_NAMESIZE &&
         std::ranges::none_of(scope, [](unsigned char c) { return c <= ' ' || c >= 127 || c == '/' || c == ']'; });
}

}  // namespace

std::uint16_t SocketAddress::port() const {
  const auto* any = reinterpret_cast<const sockaddr_in*>(&storage);  // the port lies at the same place in both families
  return ntohs(any->sin_port);
}

void SocketAddress::set_port(std::uint16_t port) { reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port); }

bool SocketAddress::is_wildcard() const {
  if (family() == AF_INET) return reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr == INADDR_ANY;
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
}

std::string SocketAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, port());
  }
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  ::inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
  if (in6->sin6_scope_id != 0) return fmt::format("[{}%{}]:{}", text, in6->sin6_scope_id, port());
  return fmt::format("[{}]:{}", text, port());
}

Result<Endpoint> Endpoint::parse(std::string_view text) {
  Endpoint out;
  std::string_view port_text;
  if (!text.empty() && text.front() == '[') {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return invalid(text, "'[' without ']'");
    out.host = text.substr(1, close - 1);
    if (!plausible_ipv6(out.host)) return invalid(text, "the text in brackets is not an IPv6 address");
    const auto rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return invalid(text, "after ']' only ':port' may follow");
    out.has_port = !rest.empty();
    if (out.has_port) port_text = rest.substr(1);
  } else if (std::ranges::count(text, ':') >= 2) {
    out.host = text;
    if (!plausible_ipv6(out.host)) return invalid(text, "not an IPv6 address");
  } else {
    const auto colon = text.find(':');
    out.host = text.substr(0, colon);
    out.has_port = colon != std::string_view::npos;
    if (out.has_port) port_text = text.substr(colon + 1);
    if (!plausible_name(out.host)) return invalid(text, "the host is missing or is not a valid host name");
  }
  if (out.has_port) {
    const auto port = parse_port(port_text);
    if (!port) return invalid(text, "the port must be a number from 0 to 65535");
    out.port = *port;
  }
  return out;
}

std::string Endpoint::to_string() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  std::string text = ipv6 ? fmt::format("[{}]", host) : host;
  if (has_port) text += fmt::format(":{}", port);
  return text;
}

Result<SocketAddress> resolve_numeric(const Endpoint& endpoint) {
  SocketAddress out;
  sockaddr_in in4{};
  in4.sin_family = AF_INET;
  if (read_address(AF_INET, endpoint.host, &in4.sin_addr)) {
    std::memcpy(&out.storage, &in4, sizeof in4);
    out.length = sizeof in4;
  } else if (const auto in6 = parse_ipv6(endpoint.host)) {
    out = *in6;
  } else if (endpoint.host.find(':') != std::string::npos) {
    return invalid(endpoint.to_string(), "this host has no such interface");
  } else {
    return Error(Status::kNotFound, fmt::format("'{}' is not a numeric address", endpoint.host));
  }
  out.set_port(endpoint.port);
  return out;
}

Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint) {
  auto numeric = resolve_numeric(endpoint);
  if (numeric) return std::vector<SocketAddress>{*numeric};
  if (numeric.status() != Status::kNotFound) return numeric.error();
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &found);
  if (rc != 0) {
    return Error(Status::kNotFound, fmt::format("host name '{}' cannot be resolved: {}", endpoint.host,
                                                rc == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(rc)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> out;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    address.set_port(endpoint.port);
    out.push_back(address);
  }
  if (out.empty()) return Error(Status::kNotFound, fmt::format("host name '{}' has no IP address", endpoint.host));
  return out;
}

}  // namespace onesided
