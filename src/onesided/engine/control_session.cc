#include "onesided/engine/control_session.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "onesided/base/log.h"
#include "onesided/engine/data_stream.h"

namespace onesided {
namespace {

constexpr std::size_t kQueueLimitBytes = 8 * kMiB;
constexpr std::int64_t kByeMs = 100;
constexpr std::uint32_t kSilentHeartbeats = 4;
constexpr int kDrainTurns = 16;  // more turns than a socket's buffer can hold data for
constexpr auto kCrowdPause = std::chrono::milliseconds(20);
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, Linux 6.5

std::uint64_t next_session_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t short_instance(const InstanceId& instance) {
  std::uint64_t value = 0;
  std::memcpy(&value, instance.bytes.data(), sizeof value);
  return value;
}

PeerInfo info_of(const OpenedSession& opened, bool local) {
  PeerInfo info;
  info.engine_id = opened.peer.engine_id;
  info.instance = short_instance(opened.peer.instance);
  info.local = local;
  info.pid = local ? static_cast<int>(opened.peer.pid) : 0;
  info.transports = opened.peer.transports;
  return info;
}

// The process at the other end of a Unix socket. The socket identifies it even if another process has got the same pid.
Fd process_of(const FramedSocket& socket, const PeerInfo& peer) {
  if (!peer.local) return {};
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (::getsockopt(socket.fd(), SOL_SOCKET, kPeerPidfd, &pidfd, &length) == 0) return Fd(pidfd);
  if (peer.pid > 0) pidfd = static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0));
  // The process has ended since accept(), or the kernel is older than 5.3: then only the end of the socket is observed.
  if (pidfd < 0) log_line(LogLevel::kDebug, fmt::format("pidfd_open({}): {}", peer.pid, std::strerror(errno)));
  return Fd(pidfd);
}

// Checks that send() makes before it queues the message.
Result<void> check_limits(const ControlMessage& message, std::size_t fds, bool local) {
  if (fds > 0 && !local) return Error(Status::kParamInvalid, "descriptors cannot be passed to a peer on another host");
  if (fds > kMaxAttachedFds)
    return Error(Status::kParamInvalid,
                 fmt::format("{} descriptors on one message; the limit is {}", fds, kMaxAttachedFds));
  const auto* notify = std::get_if<Notify>(&message);
  if (notify != nullptr && notify->name.size() + notify->message.size() > kMaxNotifyBytes) {
    return Error(Status::kParamInvalid, fmt::format("a notification of {} bytes; the limit is {} (name and message)",
                                                    notify->name.size() + notify->message.size(), kMaxNotifyBytes));
  }
  return {};
}

}  // namespace

ControlSession::ControlSession(std::shared_ptr<EventLoop> loop, SessionEvents& events, Established established,
                               std::uint32_t heartbeat_ms, std::function<void(ControlSession&)> forget)
    : id_(next_session_id()),
      loop_(std::move(loop)),
      events_(events),
      socket_(std::move(established.socket)),
      opened_(std::move(established.opened)),
      initiated_(established.initiated),
      listener_(established.listener),
      heartbeat_ms_(heartbeat_ms),
      info_(info_of(opened_, established.local)),
      process_(process_of(*socket_, info_)),
      forget_(std::move(forget)) {}

ControlSession::~ControlSession() = default;

void ControlSession::start() {
  started_ = true;
  const auto self = shared_from_this();
  const auto watched = loop_->watch(socket_->fd(), EPOLLIN, [self](std::uint32_t events) { self->on_ready(events); });
  if (!watched) return finish(watched.error());
  if (info_.local) watch_process();
  if (!info_.local) schedule_heartbeat();
  arm_output();
  receive(Receive::kWhileQueueHasCapacity);
}

void ControlSession::watch_process() {
  // If the peer has ended but a child that it forked keeps a copy of the socket, then the socket does not report the
  // end.
  if (!process_.valid()) return;
  const auto self = shared_from_this();
  // If it cannot be watched, only the end of the socket is observed.
  [[maybe_unused]] const auto watched = loop_->watch(process_.get(), EPOLLIN, [self](std::uint32_t) {
    self->receive(Receive::kAllThatArrived);
    self->finish(Error(Status::kPeerLost,
                       fmt::format("the process of {} (pid {}) ended", self->info_.engine_id, self->info_.pid)));
  });
}

bool ControlSession::process_ended() const {
  if (!process_.valid()) return info_.pid > 0 && ::kill(info_.pid, 0) != 0 && errno == ESRCH;
  pollfd look{process_.get(), POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

void ControlSession::on_ready(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if (!alive()) return;
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return receive(Receive::kAllThatArrived);
  if ((events & EPOLLIN) != 0) receive(Receive::kWhileQueueHasCapacity);
}

void ControlSession::receive(Receive how) {
  for (int turn = 0; alive() && turn < kDrainTurns; ++turn) {
    // Frames that arrived before the stream ended or broke are still handled.
    const auto filled = socket_->fill();
    if (!take_frames(how)) return;
    if (!filled) return finish(filled.error().with_context(info_.engine_id));
    if (!*filled || how == Receive::kWhileQueueHasCapacity) return;
  }
}

// False: the session has ended, or reading is paused.
bool ControlSession::take_frames(Receive how) {
  while (alive()) {
    // Only a listener answers on this thread. A dialer reads regardless of its own queue; otherwise both sides could
    // pause.
    if (how == Receive::kWhileQueueHasCapacity && !initiated_ && socket_->queued_bytes() > kQueueLimitBytes) {
      receive_paused_ = true;
      set_interest();
      return false;
    }
    auto frame = socket_->next(FrameKind::kControl);
    if (!frame) {
      finish(frame.error().with_context(info_.engine_id));
      return false;
    }
    if (!*frame) return true;
    silent_ticks_ = 0;
    const auto handled = handle(std::move(**frame));
    if (!handled) finish(handled.error());
  }
  return false;
}

Result<void> ControlSession::handle(Frame frame) {
  auto message = decode_control(frame.payload);
  if (!message) return message.error().with_context(info_.engine_id);
  if (std::holds_alternative<Heartbeat>(*message)) return {};
  if (const auto* bye = std::get_if<Bye>(&*message))
    return Error(Status::kNotConnected, fmt::format("{} disconnected: {}", info_.engine_id, bye->text));
  events_.on_message(shared_from_this(), std::move(*message), std::move(frame.fds));
  return {};
}

Result<void> ControlSession::send(const ControlMessage& message, std::vector<Fd> fds, Deadline deadline) {
  ONESIDED_TRY(check_limits(message, fds.size(), info_.local));
  ONESIDED_TRY(wait_for_capacity(deadline));
  const auto payload = encode_control(message);
  if (payload.size() > kMaxControlPayload) {
    return Error(Status::kParamInvalid, fmt::format("{} of {} bytes; the limit is {}", control_message_name(message),
                                                    payload.size(), kMaxControlPayload));
  }
  const auto sent = socket_->send(FrameKind::kControl, payload, std::move(fds));
  if (!sent) {
    const Error reason = sent.error().with_context(info_.engine_id);
    // On the loop's thread, and after the messages that the peer may have sent before it ended.
    loop_->post([self = shared_from_this(), reason] {
      self->receive(Receive::kAllThatArrived);
      self->finish(reason);
    });
    return reason;
  }
  if (!*sent) loop_->post([self = shared_from_this()] { self->arm_output(); });
  return {};
}

Result<void> ControlSession::wait_for_capacity(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!ended_ && !loop_->in_loop() && socket_->queued_bytes() > kQueueLimitBytes) {
    if (!room_.wait(lock, deadline) && deadline.passed()) {
      return Error(Status::kTimeout, fmt::format("{} does not read what is sent to it ({} bytes are queued)",
                                                 info_.engine_id, socket_->queued_bytes()));
    }
  }
  if (ended_) return *ended_;
  return {};
}

void ControlSession::stop_sending(const Error& why) {
  {
    MutexLock lock(mutex_);
    if (!ended_) ended_ = why;
  }
  room_.notify_all();
}

void ControlSession::arm_output() {
  if (alive() && started_) flush();
}

void ControlSession::flush() {
  const auto before = socket_->queued_bytes();
  const auto flushed = socket_->flush();
  if (!flushed) return finish(flushed.error().with_context(info_.engine_id));
  output_ = !*flushed;
  const auto left = socket_->queued_bytes();
  const bool resumes = receive_paused_ && left <= kQueueLimitBytes / 2;
  if (resumes) receive_paused_ = false;
  // While reading is paused, the peer shows that it is running by reading what is sent to it.
  if (receive_paused_ && left < before) silent_ticks_ = 0;
  set_interest();
  {
    // The lock closes the gap between a sender's check of the queue and its wait.
    MutexLock lock(mutex_);
  }
  room_.notify_all();
  if (*flushed && closing_begun_) return finish(Error(Status::kClosed, "closed by this engine"));
  if (*flushed) events_.on_drained(shared_from_this());
  if (resumes) receive(Receive::kWhileQueueHasCapacity);
}

void ControlSession::set_interest() {
  const bool descriptors_blocked = output_ && socket_->descriptors_blocked();
  loop_->change(socket_->fd(), (receive_paused_ ? 0U : EPOLLIN) | (output_ && !descriptors_blocked ? EPOLLOUT : 0U));
  if (!descriptors_blocked || crowd_timer_ != 0) return;
  // The socket remains writable in this state, so waiting for EPOLLOUT would be a busy loop.
  crowd_timer_ = loop_->call_at(Clock::now() + kCrowdPause, [self = shared_from_this()] {
    self->crowd_timer_ = 0;
    self->arm_output();
  });
}

void ControlSession::close(std::string_view why) {
  const Bye bye{Status::kClosed, std::string(why)};
  {
    MutexLock lock(mutex_);
    if (send_closed_) return;
    send_closed_ = true;
    ended_ = Error(Status::kClosed, fmt::format("the session with {} was closed: {}", info_.engine_id, why));
  }
  room_.notify_all();
  // begin_close() observes its failure.
  [[maybe_unused]] const auto sent = socket_->send(FrameKind::kControl, encode_control(bye));
  loop_->post([self = shared_from_this()] { self->begin_close(); });
}

void ControlSession::begin_close() {
  if (!alive() || closing_begun_) return;
  closing_begun_ = true;
  close_timer_ = loop_->call_at(Clock::now() + std::chrono::milliseconds(kByeMs), [self = shared_from_this()] {
    self->close_timer_ = 0;
    self->finish(Error(Status::kClosed, "closed by this engine; the peer did not read its last messages"));
  });
  flush();
}

void ControlSession::finish(const Error& reason) {
  if (!alive()) return;
  const auto self = shared_from_this();
  alive_.store(false, std::memory_order_release);
  // After close() the reason is CLOSED, even if the peer reads the Bye and closes the connection before this thread
  // does.
  std::optional<Error> why;
  {
    MutexLock lock(mutex_);
    send_closed_ = true;
    if (!ended_) ended_ = reason;
    why = ended_;
  }
  room_.notify_all();
  loop_->unwatch(socket_->fd());
  if (process_.valid()) loop_->unwatch(process_.get());
  loop_->cancel(heartbeat_timer_);
  loop_->cancel(crowd_timer_);
  loop_->cancel(close_timer_);
  socket_->close();
  if (forget_) forget_(*this);
  forget_ = nullptr;
  if (started_) events_.on_lost(self, *why);
}

void ControlSession::schedule_heartbeat() {
  heartbeat_timer_ = loop_->call_at(Clock::now() + std::chrono::milliseconds(heartbeat_ms_),
                                    [self = shared_from_this()] { self->on_heartbeat(); });
}

void ControlSession::on_heartbeat() {
  if (!alive()) return;
  // Counted in this engine's ticks, not in time: after this process was suspended, the peer is not reported as lost.
  const auto theirs_ms = std::clamp<std::uint64_t>(opened_.peer.heartbeat_ms, 10, 3600 * 1000);
  const auto allowed = (kSilentHeartbeats * theirs_ms + heartbeat_ms_ - 1) / heartbeat_ms_ + 1;
  if (++silent_ticks_ > allowed) {
    return finish(Error(Status::kPeerLost, fmt::format("{} has sent nothing for {} heartbeat intervals of {} ms",
                                                       info_.engine_id, kSilentHeartbeats, theirs_ms)));
  }
  // If bytes are still queued, the peer is not reading, and one more message would only be queued behind them.
  if (socket_->queued_bytes() == 0) {
    const auto sent = socket_->send(FrameKind::kControl, encode_control(Heartbeat{}));
    if (!sent) return finish(sent.error().with_context(info_.engine_id));
    if (!*sent) arm_output();
  }
  schedule_heartbeat();
}

Result<Fd> ControlSession::open_stream(std::string_view transport, Deadline deadline) {
  if (!initiated_) {
    return Error(Status::kUnsupported,
                 fmt::format("only the engine that connected opens data streams; {} connected here", info_.engine_id));
  }
  return open_data_stream(*this, listener_, opened_, std::string(transport), deadline);
}

}  // namespace onesided
