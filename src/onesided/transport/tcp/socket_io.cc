#include "onesided/transport/tcp/socket_io.h"

#include <fmt/core.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "onesided/base/check.h"
#include "onesided/base/mappings.h"

namespace onesided::tcp {
namespace {

constexpr int kIdleS = 30;
constexpr int kProbeS = 10;
constexpr int kProbes = 3;
constexpr unsigned int kGiveUpMs = 60'000;

Error broken(int error) {
  return Error(Status::kPeerLost, fmt::format("a data stream broke: {}", std::strerror(error)));
}

msghdr message_of(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = std::min<std::size_t>(parts.size(), IOV_MAX);
  return message;
}

}  // namespace

std::span<iovec> ByteRuns::front() { return std::span(parts_).subspan(first_); }

void ByteRuns::advance(std::uint64_t nbytes) {
  ONESIDED_CHECK(nbytes <= left_, "advance by {} of {}", nbytes, left_);
  left_ -= nbytes;
  while (nbytes > 0) {
    auto& part = parts_[first_];
    const auto step = std::min<std::uint64_t>(nbytes, part.iov_len);
    part.iov_base = static_cast<std::uint8_t*>(part.iov_base) + step;
    part.iov_len -= step;
    nbytes -= step;
    if (part.iov_len == 0) ++first_;
  }
}

template <typename Copy>
std::size_t ByteRuns::fill(const std::uint8_t* data, std::size_t nbytes, Copy copy) {
  std::size_t done = 0;
  while (done < nbytes && left_ > 0) {
    const auto& part = parts_[first_];
    const auto step = std::min<std::size_t>(nbytes - done, part.iov_len);
    if (!copy(part.iov_base, data + done, step)) break;
    done += step;
    advance(step);
  }
  return done;
}

std::size_t ByteRuns::fill_from(const std::uint8_t* data, std::size_t nbytes) {
  return fill(data, nbytes, [](void* to, const void* from, std::size_t step) {
    std::memcpy(to, from, step);
    return true;
  });
}

std::size_t ByteRuns::fill_carefully_from(const std::uint8_t* data, std::size_t nbytes, bool& faulted) {
  return fill(data, nbytes, [&faulted](void* to, const void* from, std::size_t step) {
    faulted = !copy_unless_it_faults(to, from, step);
    return !faulted;
  });
}

Result<std::size_t> send_some(int socket, std::span<iovec> parts) {
  auto message = message_of(parts);
  while (true) {
    const auto sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno == EFAULT) return Error(Status::kStale, "registered memory is not mapped any more");
    if (errno != EINTR) return broken(errno);
  }
}

Result<std::size_t> receive_some(int socket, std::span<iovec> parts) {
  auto message = message_of(parts);
  while (true) {
    const auto got = ::recvmsg(socket, &message, MSG_DONTWAIT);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return Error(Status::kPeerLost, "the peer closed a data stream");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno == EFAULT) return Error(Status::kStale, "registered memory is not mapped any more");
    if (errno != EINTR) return broken(errno);
  }
}

void set_up_stream(int socket, const std::string& congestion) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // The session's heartbeats detect a lost host first; keep-alive closes the socket on the side that only waits.
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleS, sizeof kIdleS);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &kProbeS, sizeof kProbeS);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kGiveUpMs, sizeof kGiveUpMs);
  if (!congestion.empty())
    ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, congestion.data(), static_cast<socklen_t>(congestion.size()));
}

bool was_aborted(int socket) {
  pollfd entry{socket, 0, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLERR | POLLNVAL)) != 0;
}

void abort_on_close(int socket) {
  const linger now{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace onesided::tcp
