#include "onesided/engine/dial.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "onesided/engine/listener.h"

namespace onesided {
namespace {

constexpr int kMaxResolvers = 64;
constexpr auto kLocalRetry = std::chrono::milliseconds(5);

std::atomic<int> g_resolvers{0};

// If no socket listens on a port of the kernel's range of source ports, a connect to it can connect to itself.
bool connected_to_itself(int fd) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof here;
  socklen_t there_length = sizeof there;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_length) != 0) return false;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_length) != 0) return false;
  return here_length == there_length && std::memcmp(&here, &there, here_length) == 0;
}

Error connect_error(const std::string& remote_id, const SocketAddress& address, int error) {
  if (error == ECONNREFUSED)
    return Error(Status::kNotConnected, fmt::format("no engine listens on {} ({})", remote_id, address.to_string()));
  const auto status = error == ETIMEDOUT ? Status::kTimeout : Status::kNotConnected;
  return Error(status,
               fmt::format("{} ({}) cannot be reached: {}", remote_id, address.to_string(), std::strerror(error)));
}

}  // namespace

Dial::Dial(std::shared_ptr<EventLoop> loop, const PeerHello& hello, const std::string& secret, bool local_socket,
           std::string remote_id, Endpoint endpoint, Deadline deadline, MayConnect may_connect, Withdrawn withdrawn,
           Done done)
    : loop_(std::move(loop)),
      hello_(hello),
      secret_(secret),
      local_socket_(local_socket),
      remote_id_(std::move(remote_id)),
      endpoint_(std::move(endpoint)),
      deadline_(deadline),
      may_connect_(std::move(may_connect)),
      withdrawn_(std::move(withdrawn)),
      done_(std::move(done)) {}

Dial::~Dial() = default;

void Dial::start() {
  if (!deadline_.is_never()) {
    deadline_timer_ = loop_->call_at(deadline_.at(), [self = shared_from_this()] {
      self->deadline_timer_ = 0;
      self->fail(
          Error(Status::kTimeout, fmt::format("connect to {} timed out while {}", self->remote_id_, self->doing_)));
    });
  }
  if (const auto numeric = resolve_numeric(endpoint_); numeric || numeric.status() != Status::kNotFound) {
    return resolved(numeric ? Result<std::vector<SocketAddress>>(std::vector{*numeric}) : numeric.error());
  }
  resolve_name();
}

void Dial::resolve_name() {
  // The resolver cannot be interrupted, so the thread owns all its data and may outlive this attempt and the engine.
  if (g_resolvers.fetch_add(1) >= kMaxResolvers) {
    g_resolvers.fetch_sub(1);
    return fail(Error(Status::kResourceExhausted,
                      fmt::format("{} host names are being resolved already, which is the limit", kMaxResolvers)));
  }
  try {
    std::thread([endpoint = endpoint_, loop = loop_, weak = weak_from_this()] {
      auto addresses = resolve(endpoint);
      g_resolvers.fetch_sub(1);
      loop->post([weak, addresses = std::move(addresses)] {
        if (const auto self = weak.lock()) self->resolved(addresses);
      });
    }).detach();
  } catch (const std::system_error& failure) {
    g_resolvers.fetch_sub(1);
    fail(Error(Status::kResourceExhausted,
               fmt::format("cannot start a thread to resolve '{}' ({})", endpoint_.host, failure.what())));
  }
}

void Dial::resolved(Result<std::vector<SocketAddress>> addresses) {
  if (!done_) return;
  if (!addresses) return fail(addresses.error());
  addresses_ = std::move(*addresses);
  std::ranges::reverse(addresses_);
  try_next_address();
}

void Dial::try_next_address() {
  drop_socket();
  if (addresses_.empty()) return fail(last_error_.value_or(Error(Status::kNotConnected, "no address to try")));
  address_ = addresses_.back();
  addresses_.pop_back();
  // If there are several addresses, one that does not answer may use only its share of the time.
  if (!addresses_.empty() && !deadline_.is_never()) {
    const auto share = (deadline_.at() - Clock::now()) / static_cast<int>(addresses_.size() + 1);
    step_timer_ = loop_->call_at(Clock::now() + share, [self = shared_from_this()] {
      self->step_timer_ = 0;
      self->last_error_ = Error(Status::kTimeout, fmt::format("{} does not answer", self->address_.to_string()));
      self->try_next_address();
    });
  }
  try_local();
}

void Dial::try_local() {
  if (!local_socket_) return try_tcp();
  doing_ = "connecting to its Unix socket";
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    return fail(Error(Status::kResourceExhausted, fmt::format("connect to {}: {}", remote_id_, std::strerror(errno))));
  }
  const auto name = unix_address(address_);
  if (::connect(socket.get(), name.get(), name.length) == 0) {
    // Another user may have bound the name: then the engine is treated like a remote peer.
    const auto peer = same_user_peer(socket.get());
    if (!peer) return try_tcp();
    connecting_ = std::move(socket);
    return begin_handshake(peer);
  }
  if (errno == EAGAIN) {
    // Its backlog is full: the engine is running but does not accept connections at the moment.
    loop_->cancel(step_timer_);
    step_timer_ = loop_->call_at(Clock::now() + kLocalRetry, [self = shared_from_this()] {
      self->step_timer_ = 0;
      if (self->done_) self->try_local();
    });
    return;
  }
  try_tcp();
}

void Dial::try_tcp() {
  doing_ = "connecting";
  connecting_ = Fd(::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connecting_.valid()) {
    return fail(Error(Status::kResourceExhausted, fmt::format("connect to {}: {}", remote_id_, std::strerror(errno))));
  }
  const int on = 1;
  ::setsockopt(connecting_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int rc = ::connect(connecting_.get(), address_.get(), address_.length);
  if (rc != 0 && errno != EINPROGRESS) {
    last_error_ = connect_error(remote_id_, address_, errno);
    return try_next_address();
  }
  const auto watched =
      loop_->watch(connecting_.get(), EPOLLOUT, [self = shared_from_this()](std::uint32_t) { self->on_connected(); });
  if (!watched) fail(watched.error());
}

void Dial::on_connected() {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0 && connected_to_itself(connecting_.get())) error = ECONNREFUSED;
  if (error != 0) {
    last_error_ = connect_error(remote_id_, address_, error);
    return try_next_address();
  }
  loop_->unwatch(connecting_.get());
  begin_handshake(std::nullopt);
}

void Dial::begin_handshake(std::optional<UnixPeer> unix_peer) {
  doing_ = "waiting for its answer (it accepted the connection; it may be suspended, or another program)";
  unix_peer_ = unix_peer;
  socket_ = std::make_unique<FramedSocket>(std::move(connecting_), unix_peer.has_value());
  handshake_.emplace(HandshakeSelf{hello_, secret_, unix_peer}, remote_id_, address_.to_string());
  const auto watched =
      loop_->watch(socket_->fd(), EPOLLIN, [self = shared_from_this()](std::uint32_t) { self->on_ready(); });
  if (!watched) fail(watched.error());
}

void Dial::on_ready() {
  const auto filled = socket_->fill();
  while (done_) {
    auto frame = socket_->next(FrameKind::kHandshake);
    if (!frame) {
      // Any program may listen on a port.
      return fail(frame.status() == Status::kUnsupported
                      ? frame.error()
                      : Error(Status::kUnsupported,
                              fmt::format("the program that listens on {} does not use this protocol ({})", remote_id_,
                                          frame.error().text())));
    }
    if (!*frame) break;
    const auto finished = on_frame(**frame);
    if (!finished) return fail(finished.error());
    if (*finished) return;
  }
  if (!filled && done_) {
    fail(Error(Status::kPeerLost, fmt::format("{} ended the connection during the handshake", remote_id_)));
  }
}

// True once the session is handed over.
Result<bool> Dial::on_frame(const Frame& frame) {
  if (!answering_) {
    ONESIDED_TRY_ASSIGN(answer, handshake_->on_greeting(frame.payload));
    ONESIDED_TRY(may_connect_(handshake_->peer_instance()));
    answering_ = handshake_->peer_instance();
    ONESIDED_TRY_ASSIGN(sent, socket_->send(FrameKind::kHandshake, answer));
    if (!sent) return Error(Status::kFailed, "a new connection does not accept the first message");
    return false;
  }
  ONESIDED_TRY_ASSIGN(opened, handshake_->on_reply(frame.payload));
  loop_->unwatch(socket_->fd());
  Established established;
  established.local = unix_peer_.has_value();
  established.initiated = true;
  established.listener = address_;
  if (!established.local) {
    socket_->seal(opened.keys.to_listener);
    socket_->demand_seal(opened.keys.to_dialer);
  }
  established.socket = std::move(socket_);
  established.opened = std::move(opened);
  end(std::move(established));
  return true;
}

void Dial::drop_socket() {
  loop_->cancel(step_timer_);
  step_timer_ = 0;
  if (connecting_.valid()) loop_->unwatch(connecting_.get());
  connecting_.reset();
  if (socket_) {
    loop_->unwatch(socket_->fd());
    socket_->close();
  }
  socket_.reset();
  if (answering_) withdrawn_(*std::exchange(answering_, std::nullopt));
}

void Dial::fail(Error error) {
  if (done_) end(std::move(error));
}

void Dial::end(Result<Established> result) {
  const auto self = shared_from_this();
  const auto done = std::exchange(done_, nullptr);
  drop_socket();
  loop_->cancel(deadline_timer_);
  deadline_timer_ = 0;
  done(*this, std::move(result));
}

}  // namespace onesided
