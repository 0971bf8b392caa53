// One control connection after its handshake: ordered messages, detection of a dead peer, and exactly one report of its
// loss.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "onesided/base/event_loop.h"
#include "onesided/base/mutex.h"
#include "onesided/engine/framed_socket.h"
#include "onesided/engine/handshake.h"
#include "onesided/engine/session.h"

namespace onesided {

// A connection whose handshake is complete. A movable value.
struct Established {
  std::unique_ptr<FramedSocket> socket;
  OpenedSession opened;
  bool initiated = false;
  bool local = false;
  SocketAddress listener;  // where data streams are dialed (initiated only)
};

// Internally synchronized. Any thread may call what Session declares; everything else runs on the loop's thread.
class ControlSession final : public Session, public std::enable_shared_from_this<ControlSession> {
 public:
  // `forget` runs once, on the loop, just before on_lost().
  ControlSession(std::shared_ptr<EventLoop> loop, SessionEvents& events, Established established,
                 std::uint32_t heartbeat_ms, std::function<void(ControlSession&)> forget);
  ~ControlSession() override;

  std::uint64_t id() const override { return id_; }
  const PeerHello& hello() const override { return opened_.peer; }
  const PeerInfo& peer() const override { return info_; }
  bool initiated() const override { return initiated_; }
  bool alive() const override { return alive_.load(std::memory_order_acquire); }
  bool process_ended() const override;
  Result<void> wait_for_capacity(Deadline deadline) override;
  bool drained() const override { return socket_->queued_bytes() == 0; }
  void stop_sending(const Error& why) override;
  Result<void> send(const ControlMessage& message, std::vector<Fd> fds, Deadline deadline) override;
  void close(std::string_view why) override;
  Result<Fd> open_stream(std::string_view transport, Deadline deadline) override;

  const OpenedSession& opened() const { return opened_; }
  FramedSocket& socket() { return *socket_; }
  // Loop: begins to read from the peer. Messages that arrived with the handshake are handled before it returns.
  void start();
  // Loop: ends the session; no-op if it has ended. Before start() nothing is reported.
  void finish(const Error& reason);

 private:
  enum class Receive { kWhileQueueHasCapacity, kAllThatArrived };

  void on_ready(std::uint32_t events);
  void receive(Receive how);
  bool take_frames(Receive how);
  Result<void> handle(Frame frame);
  void flush();
  void set_interest();
  void arm_output();
  void begin_close();
  void watch_process();
  void schedule_heartbeat();
  void on_heartbeat();

  const std::uint64_t id_;
  const std::shared_ptr<EventLoop> loop_;
  SessionEvents& events_;
  const std::unique_ptr<FramedSocket> socket_;
  const OpenedSession opened_;
  const bool initiated_;
  const SocketAddress listener_;
  const std::uint32_t heartbeat_ms_;
  const PeerInfo info_;
  const Fd process_;  // pidfd of a local peer

  // Used on the loop's thread only.
  std::function<void(ControlSession&)> forget_;
  bool started_ = false;
  bool closing_begun_ = false;
  bool output_ = false;          // the kernel did not accept all queued bytes
  bool receive_paused_ = false;  // the peer does not read our answers, so requests are not read
  EventLoop::TimerId crowd_timer_ = 0;
  EventLoop::TimerId heartbeat_timer_ = 0;
  EventLoop::TimerId close_timer_ = 0;
  std::uint32_t silent_ticks_ = 0;

  std::atomic<bool> alive_{true};
  Mutex mutex_;
  CondVar room_;
  std::optional<Error> ended_ ONESIDED_GUARDED_BY(mutex_);  // set: send() fails with this error
  bool send_closed_ ONESIDED_GUARDED_BY(mutex_) = false;    // Bye was queued, or the connection has ended
};

}  // namespace onesided
