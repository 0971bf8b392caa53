#include "onesided/engine/data_stream.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "onesided/engine/endpoint.h"
#include "onesided/engine/framed_socket.h"

namespace onesided {
namespace {

// How often a wait checks that the session is open. Used only while a stream is being opened.
constexpr int kLookMs = 100;

Result<void> wait_for(int fd, short events, const PeerChannel& session, Deadline deadline) {
  while (true) {
    if (!session.alive()) return Error(Status::kPeerLost, "the session ended while a data stream was opened");
    if (deadline.passed()) return Error(Status::kTimeout, "the peer did not answer while a data stream was opened");
    pollfd entry{fd, events, 0};
    const int left_ms = deadline.poll_timeout_ms();
    const int rc = ::poll(&entry, 1, left_ms < 0 ? kLookMs : std::min(left_ms, kLookMs));
    if (rc > 0) return {};
    if (rc < 0 && errno != EINTR) return Error(Status::kFailed, fmt::format("poll: {}", std::strerror(errno)));
  }
}

Result<Fd> connect_tcp(const SocketAddress& listener, const PeerChannel& session, Deadline deadline) {
  Fd socket(::socket(listener.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid())
    return Error(Status::kResourceExhausted, fmt::format("data stream: no socket left ({})", std::strerror(errno)));
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  int error = ::connect(socket.get(), listener.get(), listener.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    ONESIDED_TRY(wait_for(socket.get(), POLLOUT, session, deadline));
    socklen_t length = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error != 0) {
    return Error(Status::kPeerLost, fmt::format("data stream to {}: {}", listener.to_string(), std::strerror(error)));
  }
  return socket;
}

Result<Frame> next_frame(FramedSocket& socket, const PeerChannel& session, Deadline deadline) {
  Result<bool> filled = true;
  while (true) {
    ONESIDED_TRY_ASSIGN(frame, socket.next(FrameKind::kHandshake));
    if (frame) return std::move(*frame);
    if (!filled) return filled.error();
    ONESIDED_TRY(wait_for(socket.fd(), POLLIN, session, deadline));
    filled = socket.fill();  // a complete frame may precede the end of the stream
  }
}

}  // namespace

Result<Fd> open_data_stream(const PeerChannel& session, const SocketAddress& listener, const OpenedSession& opened,
                            std::string transport, Deadline deadline) {
  ONESIDED_TRY_ASSIGN(connected, connect_tcp(listener, session, deadline));
  FramedSocket socket(std::move(connected), false);
  StreamHandshake handshake(opened.token, opened.keys.streams, std::move(transport));
  ONESIDED_TRY_ASSIGN(greeting, next_frame(socket, session, deadline));
  ONESIDED_TRY_ASSIGN(open, handshake.on_greeting(greeting.payload));
  ONESIDED_TRY_ASSIGN(sent, socket.send(FrameKind::kHandshake, open));
  if (!sent) return Error(Status::kFailed, "data stream: a new connection does not accept the first message");
  ONESIDED_TRY_ASSIGN(reply, next_frame(socket, session, deadline));
  ONESIDED_TRY(handshake.on_reply(reply.payload));
  if (!socket.drained())
    return Error(Status::kParamInvalid, "data stream: the listener sent a message before it was requested");
  return socket.take();
}

}  // namespace onesided
