#include "onesided/engine/incoming.h"

#include <fmt/core.h>
#include <sys/epoll.h>

#include "onesided/base/log.h"

namespace onesided {

Incoming::Incoming(std::shared_ptr<EventLoop> loop, Host& host, Fd socket, HandshakeSelf self,
                   Clock::time_point give_up)
    : loop_(std::move(loop)),
      host_(host),
      socket_(std::make_unique<FramedSocket>(std::move(socket), self.unix_peer.has_value())),
      local_(self.unix_peer.has_value()),
      handshake_(self),
      give_up_(give_up) {}

Incoming::~Incoming() {
  if (socket_) loop_->unwatch(socket_->fd());
  loop_->cancel(timer_);
}

void Incoming::start() {
  const auto watched = loop_->watch(socket_->fd(), EPOLLIN, [this](std::uint32_t) { on_ready(); });
  const auto sent = socket_->send(FrameKind::kHandshake, handshake_.greeting());
  if (!watched || !sent) return end();
  timer_ = loop_->call_at(give_up_, [this] { end(); });
}

void Incoming::on_ready() {
  if (ended_) return;
  const auto filled = socket_->fill();
  auto frame = socket_->next(FrameKind::kHandshake);
  if (!frame) {
    log_line(LogLevel::kInfo, fmt::format("connection refused: {}", frame.error().text()));
    socket_->refuse(FrameKind::kHandshake, refusal(frame.error()));
    return end();
  }
  if (*frame) return conclude(**frame);
  if (!filled) end();
}

void Incoming::conclude(const Frame& frame) {
  auto outcome =
      handshake_.on_message(frame.payload, [this](const SessionToken& token) { return host_.stream_key(token); });
  if (!outcome) {
    log_line(LogLevel::kInfo, fmt::format("connection refused: {}", outcome.error().to_string()));
    socket_->refuse(FrameKind::kHandshake, refusal(outcome.error()));
    return end();
  }
  loop_->unwatch(socket_->fd());
  if (auto* session = std::get_if<ListenerHandshake::Session>(&*outcome)) {
    Established established;
    established.socket = std::move(socket_);
    established.opened = std::move(session->opened);
    established.local = local_;
    host_.accept_session(std::move(established), std::move(session->reply));
    return end();
  }
  auto& stream = std::get<ListenerHandshake::Stream>(*outcome);
  const auto sent = socket_->send(FrameKind::kHandshake, stream.reply);
  // The peer waits for the reply before it sends again.
  const bool clean = sent && *sent && socket_->drained();
  if (clean) host_.accept_stream(stream.token, stream.transport, socket_->take());
  end();
}

void Incoming::end() {
  if (ended_) return;
  ended_ = true;
  if (socket_) {
    loop_->unwatch(socket_->fd());
    socket_->close();
    // The destructor runs later, when the descriptor number may belong to another connection, which it must not
    // unwatch.
    socket_.reset();
  }
  loop_->cancel(timer_);
  timer_ = 0;
  host_.forget(*this);
}

}  // namespace onesided
