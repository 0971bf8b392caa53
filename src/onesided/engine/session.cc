#include "onesided/engine/session.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "onesided/base/log.h"
#include "onesided/base/mutex.h"
#include "onesided/engine/control_session.h"
#include "onesided/engine/dial.h"
#include "onesided/engine/incoming.h"
#include "onesided/engine/listener.h"

namespace onesided {
namespace {

// If there are more unauthenticated connections than this, the oldest is closed.
constexpr std::size_t kMaxIncoming = 256;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

PeerHello make_hello(const SessionOptions& options, const Listener& listener) {
  PeerHello hello;
  hello.protocol_version = kProtocolVersion;
  hello.engine_id = listener.engine_id;
  hello.bound_address = listener.address.to_string();
  hello.instance = InstanceId::random();
  hello.pid = static_cast<std::uint32_t>(::getpid());
  hello.uid = ::geteuid();
  hello.host = HostIdentity::current();
  hello.transports = options.transports;
  hello.tcp_streams = options.tcp_streams;
  hello.heartbeat_ms = options.heartbeat_ms;
  hello.max_notify_bytes = kMaxNotifyBytes;
  return hello;
}

Result<void> check_options(const SessionOptions& options) {
  if (!options.secret.empty() && options.secret.size() < kMinSecretBytes) {
    return Error(Status::kParamInvalid, fmt::format("the shared secret has {} bytes; at least {} are required",
                                                    options.secret.size(), kMinSecretBytes));
  }
  if (options.heartbeat_ms < 10 || options.heartbeat_ms > 3600 * 1000)
    return Error(Status::kParamInvalid, fmt::format("heartbeat_ms {} is not in 10..3600000", options.heartbeat_ms));
  if (options.handshake_ms == 0) return Error(Status::kParamInvalid, "handshake_ms must not be 0");
  if (options.transports.size() > kMaxTransportNames)
    return Error(Status::kParamInvalid, fmt::format("more than {} transports", kMaxTransportNames));
  for (const auto& name : options.transports) {
    if (name.empty() || name.size() > kMaxTransportNameBytes)
      return Error(Status::kParamInvalid, fmt::format("transport name '{}' is empty or too long", name));
  }
  return {};
}

// Fields of the loop's thread are used on no other thread, except in the constructor and after the loop has stopped.
class EngineSessions final : public Sessions, public Incoming::Host {
 public:
  EngineSessions(SessionOptions options, SessionEvents& events, Listener listener, std::shared_ptr<EventLoop> loop)
      : options_(std::move(options)),
        events_(events),
        listener_(std::move(listener)),
        hello_(make_hello(options_, listener_)),
        loop_(std::move(loop)) {}
  ~EngineSessions() override { close(); }

  Result<void> listen();

  const PeerHello& hello() const override { return hello_; }
  void connect_async(std::string_view remote_id, Deadline deadline, ConnectDone done) override;
  Result<std::shared_ptr<Session>> connect(std::string_view remote_id, Deadline deadline) override;
  void close() override;

 private:
  // Incoming::Host
  std::optional<Key> stream_key(const SessionToken& token) override;
  void accept_session(Established established, std::vector<std::uint8_t> reply) override;
  void accept_stream(const SessionToken& token, const std::string& transport, Fd stream) override;
  void forget(Incoming& incoming) override;

  void on_acceptable(int listener, bool local);
  void pause_accepting();
  void add_incoming(Fd socket, bool local);
  void dial(std::string remote_id, Endpoint endpoint, Deadline deadline, ConnectDone done);
  Result<void> may_connect(const InstanceId& instance);
  void dialed(Dial& dial, Result<Established> established, const ConnectDone& done);
  std::shared_ptr<ControlSession> make_session(Established established);
  void forget_session(ControlSession& session);
  void close_all();

  const SessionOptions options_;
  SessionEvents& events_;
  Listener listener_;
  const PeerHello hello_;
  const std::shared_ptr<EventLoop> loop_;

  // Of the loop's thread.
  bool closing_ = false;
  std::map<SessionToken, std::shared_ptr<ControlSession>> accepted_;
  std::map<InstanceId, std::shared_ptr<ControlSession>> initiated_;
  std::set<InstanceId> dialing_;  // engines to which a ClientHello was sent
  std::set<std::shared_ptr<Dial>> dials_;
  std::map<std::uint64_t, std::unique_ptr<Incoming>> incoming_;  // oldest first
  std::map<const Incoming*, std::uint64_t> incoming_index_;
  std::uint64_t next_incoming_ = 0;

  Mutex mutex_;
  bool closed_ ONESIDED_GUARDED_BY(mutex_) = false;
  CondVar no_sessions_;
  bool sessions_ended_ ONESIDED_GUARDED_BY(mutex_) = false;
};

Result<void> EngineSessions::listen() {
  const auto watch = [this](int fd, bool local) {
    return loop_->watch(fd, EPOLLIN, [this, fd, local](std::uint32_t) { on_acceptable(fd, local); });
  };
  // The loop is running already, and only its thread may use its tables.
  Result<void> result;
  Mutex mutex;
  CondVar done_cv;
  bool done = false;
  loop_->post([&] {
    auto watched = watch(listener_.tcp.get(), false);
    if (watched && options_.local_socket) watched = watch(listener_.local.get(), true);
    MutexLock lock(mutex);
    result = std::move(watched);
    done = true;
    done_cv.notify_all();
  });
  MutexLock lock(mutex);
  while (!done) done_cv.wait(lock);
  return result;
}

void EngineSessions::on_acceptable(int listener, bool local) {
  for (int burst = 0; burst < 64; ++burst) {
    Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      add_incoming(std::move(socket), local);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return pause_accepting();
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    // Other errors concern this one connection (ECONNABORTED, EPERM, a network error); the next may succeed.
  }
}

void EngineSessions::pause_accepting() {
  log_line(LogLevel::kWarn,
           fmt::format("{}: no descriptor left for a new peer; trying again in 100 ms", hello_.engine_id));
  loop_->change(listener_.tcp.get(), 0);
  loop_->change(listener_.local.get(), 0);
  loop_->call_at(Clock::now() + kAcceptPause, [this] {
    loop_->change(listener_.tcp.get(), EPOLLIN);
    loop_->change(listener_.local.get(), EPOLLIN);
  });
}

void EngineSessions::add_incoming(Fd socket, bool local) {
  std::optional<UnixPeer> peer;
  if (local) {
    peer = same_user_peer(socket.get());
    if (!peer) {
      log_line(LogLevel::kInfo,
               fmt::format("{}: refused a connection from a process of another user", hello_.engine_id));
      FramedSocket refused(std::move(socket), true);
      refused.refuse(FrameKind::kHandshake,
                     refusal(Error(Status::kAuthFailed, "this engine accepts local peers of its own user only")));
      return;
    }
  } else {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (incoming_.size() >= kMaxIncoming) {
    incoming_index_.erase(incoming_.begin()->second.get());
    incoming_.erase(incoming_.begin());
  }
  const auto give_up = Clock::now() + std::chrono::milliseconds(options_.handshake_ms);
  auto made = std::make_unique<Incoming>(loop_, *this, std::move(socket), HandshakeSelf{hello_, options_.secret, peer},
                                         give_up);
  auto* raw = made.get();
  incoming_index_[raw] = next_incoming_;
  incoming_[next_incoming_++] = std::move(made);
  raw->start();
}

void EngineSessions::forget(Incoming& incoming) {
  const auto found = incoming_index_.find(&incoming);
  if (found == incoming_index_.end()) return;
  const auto place = incoming_.find(found->second);
  // Its function is on the call stack: destroy it after that has returned.
  loop_->post([keep = std::shared_ptr<Incoming>(std::move(place->second))] {});
  incoming_.erase(place);
  incoming_index_.erase(found);
}

std::optional<Key> EngineSessions::stream_key(const SessionToken& token) {
  const auto found = accepted_.find(token);
  if (found == accepted_.end()) return std::nullopt;
  return found->second->opened().keys.streams;
}

std::shared_ptr<ControlSession> EngineSessions::make_session(Established established) {
  return std::make_shared<ControlSession>(loop_, events_, std::move(established), options_.heartbeat_ms,
                                          [this](ControlSession& session) { forget_session(session); });
}

void EngineSessions::accept_session(Established established, std::vector<std::uint8_t> reply) {
  auto* socket = established.socket.get();
  // An authenticated peer must not be able to use all descriptors of this process.
  if (accepted_.size() >= descriptor_limit() / 4) {
    const Error full(
        Status::kResourceExhausted,
        fmt::format("{} peers are connected; the limit is a quarter of the descriptors (ulimit -n)", accepted_.size()));
    return socket->refuse(FrameKind::kHandshake, refusal(full));
  }
  if (!established.local) {
    socket->seal(established.opened.keys.to_dialer);
    socket->demand_seal(established.opened.keys.to_listener);
  }
  socket->hold();
  const auto session = make_session(std::move(established));
  const auto accepted = events_.on_accepted(session);
  if (!accepted) {
    socket->refuse(FrameKind::kHandshake, refusal(accepted.error()));
    return session->finish(accepted.error());
  }
  accepted_[session->opened().token] = session;
  // A failure is reported when the session starts to read.
  [[maybe_unused]] const auto sent = socket->release(FrameKind::kHandshake, reply);
  session->start();
}

void EngineSessions::accept_stream(const SessionToken& token, const std::string& transport, Fd stream) {
  const auto found = accepted_.find(token);
  if (found == accepted_.end()) return;
  const auto session = found->second;
  events_.on_data_stream(session, transport, std::move(stream));
}

void EngineSessions::forget_session(ControlSession& session) {
  if (session.initiated()) {
    const auto found = initiated_.find(session.hello().instance);
    if (found != initiated_.end() && found->second.get() == &session) initiated_.erase(found);
  } else {
    accepted_.erase(session.opened().token);
  }
  if (closing_ && initiated_.empty() && accepted_.empty()) {
    MutexLock lock(mutex_);
    sessions_ended_ = true;
    no_sessions_.notify_all();
  }
}

void EngineSessions::connect_async(std::string_view remote_id, Deadline deadline, ConnectDone done) {
  auto endpoint = Endpoint::parse(remote_id);
  if (endpoint && endpoint->port == 0) {
    endpoint =
        Error(Status::kParamInvalid, fmt::format("'{}' has no port; pass the other engine's id to connect", remote_id));
  }
  MutexLock lock(mutex_);
  if (closed_) {
    lock.unlock();
    return done(Error(Status::kClosed, "the engine is closed"));
  }
  loop_->post([this, id = std::string(remote_id), endpoint = std::move(endpoint), deadline, done = std::move(done)] {
    if (!endpoint) return done(endpoint.error());
    dial(id, *endpoint, deadline, done);
  });
}

Result<std::shared_ptr<Session>> EngineSessions::connect(std::string_view remote_id, Deadline deadline) {
  ONESIDED_CHECK(!loop_->in_loop(), "Sessions::connect() on the I/O thread");
  struct Answer {
    Mutex mutex;
    CondVar given;
    std::optional<Result<std::shared_ptr<Session>>> result;
  };
  const auto answer = std::make_shared<Answer>();
  connect_async(remote_id, deadline, [answer](Result<std::shared_ptr<Session>> result) {
    MutexLock lock(answer->mutex);
    answer->result.emplace(std::move(result));
    answer->given.notify_all();
  });
  MutexLock lock(answer->mutex);
  // The dial ends itself at the deadline.
  while (!answer->result) answer->given.wait(lock);
  return *answer->result;
}

void EngineSessions::dial(std::string remote_id, Endpoint endpoint, Deadline deadline, ConnectDone done) {
  if (closing_) return done(Error(Status::kClosed, "the engine is closed"));
  const auto attempt = std::make_shared<Dial>(
      loop_, hello_, options_.secret, options_.local_socket, std::move(remote_id), std::move(endpoint), deadline,
      [this](const InstanceId& instance) { return may_connect(instance); },
      [this](const InstanceId& instance) { dialing_.erase(instance); },
      [this, done = std::move(done)](Dial& ended, Result<Established> result) {
        dialed(ended, std::move(result), done);
      });
  dials_.insert(attempt);
  attempt->start();
}

Result<void> EngineSessions::may_connect(const InstanceId& instance) {
  if (instance == hello_.instance)
    return Error(Status::kParamInvalid, fmt::format("this is the same engine; its own id is {}", hello_.engine_id));
  const auto live = initiated_.find(instance);
  if (live != initiated_.end()) {
    return Error(Status::kAlreadyConnected, fmt::format("already connected to {} (instance {})",
                                                        live->second->peer().engine_id, instance.to_string()));
  }
  if (!dialing_.insert(instance).second)
    return Error(Status::kAlreadyConnected, "another connect to the same engine is in progress");
  return {};
}

void EngineSessions::dialed(Dial& dial, Result<Established> established, const ConnectDone& done) {
  dials_.erase(dial.shared_from_this());
  if (!established) return done(established.error());
  const auto session = make_session(std::move(*established));
  initiated_[session->hello().instance] = session;
  events_.on_connected(session);
  done(std::shared_ptr<Session>(session));
  session->start();
}

void EngineSessions::close_all() {
  closing_ = true;
  loop_->unwatch(listener_.tcp.get());
  loop_->unwatch(listener_.local.get());
  incoming_index_.clear();
  incoming_.clear();
  const auto dials = dials_;
  for (const auto& attempt : dials) attempt->fail(Error(Status::kClosed, "the engine was closed"));
  if (initiated_.empty() && accepted_.empty()) {
    MutexLock lock(mutex_);
    sessions_ended_ = true;
    no_sessions_.notify_all();
  }
  std::vector<std::shared_ptr<ControlSession>> sessions;
  for (const auto& [_, session] : initiated_) sessions.push_back(session);
  for (const auto& [_, session] : accepted_) sessions.push_back(session);
  for (const auto& session : sessions) session->close("its engine was closed");
}

void EngineSessions::close() {
  ONESIDED_CHECK(!loop_->in_loop(), "Sessions::close() on the I/O thread");
  {
    MutexLock lock(mutex_);
    const bool first = !closed_;
    closed_ = true;
    if (first) loop_->post([this] { close_all(); });
    // If a peer does not acknowledge the Bye, its session ends by a timeout of its own.
    while (!sessions_ended_) no_sessions_.wait(lock);
  }
  loop_->stop();
  listener_.tcp.reset();
  listener_.local.reset();
}

}  // namespace

Result<std::unique_ptr<Sessions>> Sessions::create(SessionOptions options, SessionEvents& events) {
  ONESIDED_TRY(check_options(options));
  ONESIDED_TRY_ASSIGN(listener, Listener::bind(options.local_engine));
  if (!options.local_socket) listener.local.reset();
  ONESIDED_TRY_ASSIGN(loop, EventLoop::create("onesided-io"));
  auto sessions = std::make_unique<EngineSessions>(std::move(options), events, std::move(listener), std::move(loop));
  ONESIDED_TRY(sessions->listen());
  return std::unique_ptr<Sessions>(std::move(sessions));
}

}  // namespace onesided
