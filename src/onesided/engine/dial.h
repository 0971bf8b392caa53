// One attempt to connect to a peer: resolve its name, try its addresses over a Unix or TCP socket, do the handshake.
// Each of these steps may take unlimited time, so every attempt is a state machine on the shared event loop and no
// attempt delays another.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onesided/base/event_loop.h"
#include "onesided/engine/control_session.h"
#include "onesided/engine/endpoint.h"
#include "onesided/engine/framed_socket.h"
#include "onesided/engine/handshake.h"

namespace onesided {

// One attempt to open a session. Confined to the loop's thread.
class Dial : public std::enable_shared_from_this<Dial> {
 public:
  using Done = std::function<void(Dial&, Result<Established>)>;
  // Called when the answering engine has named itself; an error ends the attempt. If the attempt was allowed, Withdrawn
  // is called later: before Done, or when another address is tried.
  using MayConnect = std::function<Result<void>(const InstanceId&)>;
  using Withdrawn = std::function<void(const InstanceId&)>;

  // `hello` and `secret` must outlive it.
  Dial(std::shared_ptr<EventLoop> loop, const PeerHello& hello, const std::string& secret, bool local_socket,
       std::string remote_id, Endpoint endpoint, Deadline deadline, MayConnect may_connect, Withdrawn withdrawn,
       Done done);
  ~Dial();

  void start();
  // Ends the attempt with this error, unless it has ended.
  void fail(Error error);

 private:
  void resolve_name();
  void resolved(Result<std::vector<SocketAddress>> addresses);
  void try_next_address();
  void try_local();
  void try_tcp();
  void on_connected();
  void begin_handshake(std::optional<UnixPeer> unix_peer);
  void on_ready();
  Result<bool> on_frame(const Frame& frame);
  void drop_socket();
  void end(Result<Established> result);

  const std::shared_ptr<EventLoop> loop_;
  const PeerHello& hello_;
  const std::string& secret_;
  const bool local_socket_;
  const std::string remote_id_;
  const Endpoint endpoint_;
  const Deadline deadline_;
  MayConnect may_connect_;
  Withdrawn withdrawn_;
  Done done_;

  const char* doing_ = "resolving its name";
  EventLoop::TimerId deadline_timer_ = 0;
  EventLoop::TimerId step_timer_ = 0;
  std::vector<SocketAddress> addresses_;  // those still to be tried, last first
  SocketAddress address_;                 // the one being tried
  std::optional<Error> last_error_;
  Fd connecting_;
  std::unique_ptr<FramedSocket> socket_;
  std::optional<UnixPeer> unix_peer_;
  std::optional<DialerHandshake> handshake_;
  std::optional<InstanceId> answering_;  // the engine that sent the greeting and was allowed
};

}  // namespace onesided
