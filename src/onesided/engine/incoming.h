// An accepted connection during its handshake. Until it is authenticated it costs one small object, may send one small
// frame, and has a short time limit.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "onesided/base/event_loop.h"
#include "onesided/engine/control_session.h"
#include "onesided/engine/framed_socket.h"
#include "onesided/engine/handshake.h"

namespace onesided {

// Confined to the loop's thread.
class Incoming {
 public:
  // What it needs from the engine's sessions.
  class Host {
   public:
    virtual ~Host() = default;
    virtual std::optional<Key> stream_key(const SessionToken& token) = 0;
    // The peer is authenticated; `reply` must be sent first. The callee starts the session or sends a refusal on the
    // socket.
    virtual void accept_session(Established established, std::vector<std::uint8_t> reply) = 0;
    virtual void accept_stream(const SessionToken& token, const std::string& transport, Fd stream) = 0;
    // The connection has ended or was handed over: destroy the object, later, not during this call.
    virtual void forget(Incoming& incoming) = 0;
  };

  Incoming(std::shared_ptr<EventLoop> loop, Host& host, Fd socket, HandshakeSelf self, Clock::time_point give_up);
  ~Incoming();
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  // Sends the greeting.
  void start();

 private:
  void on_ready();
  void conclude(const Frame& frame);
  void end();

  const std::shared_ptr<EventLoop> loop_;
  Host& host_;
  std::unique_ptr<FramedSocket> socket_;
  const bool local_;
  ListenerHandshake handshake_;
  const Clock::time_point give_up_;
  EventLoop::TimerId timer_ = 0;
  bool ended_ = false;
};

}  // namespace onesided
