// Two engines that know each other share one authenticated, ordered control connection. Over it they introduce
// themselves, publish regions, pass descriptors and notice each other's death; data goes elsewhere. This is the face
// the rest of the engine sees; who may connect is docs/security.md, the bytes are docs/wire_format.md.
//
// Direction: a session belongs to the side that dialed. If both sides connect at the same time there are two sessions,
// one each way, and neither waits for the other; there is never a tie to break. Towards one peer instance there is at
// most one session that we dialed: a second connect() finds the first (ALREADY_CONNECTED). An accepted session never
// ends another one: an instance is what a peer says of itself, and whoever says it must not be able to hang up on
// somebody else. One that its peer has given up ends when its connection does, or falls silent.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "onesided/base/clock.h"
#include "onesided/base/fd.h"
#include "onesided/base/result.h"
#include "onesided/engine/auth.h"
#include "onesided/engine/endpoint.h"
#include "onesided/transport/transport.h"
#include "onesided/wire/control.h"
#include "onesided/wire/identity.h"

namespace onesided {

// One control connection. Internally synchronized; shared by the engine and the I/O thread.
class Session : public PeerChannel {
 public:
  // Never reused in this process.
  virtual std::uint64_t id() const = 0;
  // Who the peer is: proved over a Unix socket (uid and pid are the kernel's word), or by the shared secret.
  virtual const PeerHello& hello() const = 0;
  // We dialed (and may transfer); otherwise the peer did.
  virtual bool initiated() const = 0;
  // From PeerChannel: peer() is the part of the hello that transports see; peer().local: over a Unix socket, same host
  // and uid, descriptors can be attached. alive(): false before on_lost() runs. open_stream(): dialer only (UNSUPPORTED
  // otherwise); a non-blocking TCP connection, both ends proved to belong to this session; blocks; TIMEOUT, PEER_LOST,
  // AUTH_FAILED. The peer's engine gets its end through on_data_stream().

  // The process at the other end of a local session has ended: none of its threads runs any more. Says so after the
  // session's end too, which is no proof of it. Never true where the kernel cannot tell.
  virtual bool process_ended() const = 0;

  // Queues the message; it arrives once and in order, or the session is lost. Takes the descriptors. Waits while more
  // than 8 MiB are queued, until the deadline (TIMEOUT); from the I/O thread it never waits. Over the limits of
  // wire/control.h, or descriptors on a TCP session: PARAM_INVALID. Lost: the reason it was lost with.
  virtual Result<void> send(const ControlMessage& message, std::vector<Fd> fds = {},
                            Deadline deadline = Deadline::never()) = 0;
  // Blocks until no more than 8 MiB are queued. TIMEOUT. Lost or stopped: why. Not from the I/O thread.
  virtual Result<void> wait_for_room(Deadline deadline) = 0;
  // All that was sent has been handed to the kernel. On its way to false and back it is reported as on_drained().
  virtual bool drained() const = 0;
  // From now on send() and wait_for_room() answer `why`, also to those who wait in them. close() still says Bye.
  virtual void stop_sending(const Error& why) = 0;

  // Says Bye after what is queued and closes. on_lost() follows (CLOSED). Idempotent, does not block.
  virtual void close(std::string_view why) = 0;
};

// What the sessions of an engine report. All calls come from its one I/O thread, must not block, and may call send()
// and close(). For one session: on_accepted (if the peer dialed), on_message and on_drained..., then on_lost exactly
// once, then nothing.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  // A peer dialed us and proved who it is. An error refuses it: the peer's connect() fails with it. Messages sent from
  // within are the first the peer gets after connect() succeeded.
  virtual Result<void> on_accepted(const std::shared_ptr<Session>& session) = 0;
  // Our connect() succeeded; called before it returns and before the first on_message().
  virtual void on_connected(const std::shared_ptr<Session>& session) = 0;
  virtual void on_message(const std::shared_ptr<Session>& session, ControlMessage message, std::vector<Fd> fds) = 0;
  // All that was queued has been sent. May come when nothing was.
  virtual void on_drained(const std::shared_ptr<Session>& session) = 0;
  // PEER_LOST: the peer's process died, its host fell silent, or the connection broke. NOT_CONNECTED: it said Bye.
  // CLOSED: we closed. PARAM_INVALID: it sent what cannot be decoded. A failed connect() is not reported here.
  virtual void on_lost(const std::shared_ptr<Session>& session, const Error& reason) = 0;
  // The peer called open_stream(transport) on its end of an accepted session (non-blocking, connected).
  virtual void on_data_stream(const std::shared_ptr<Session>& session, std::string_view transport, Fd stream) = 0;
};

struct SessionOptions {
  std::string local_engine = "127.0.0.1";  // Endpoint; no port or port 0: the kernel chooses one
  std::string
      secret;  // as read_secret_file() gives it; empty: only peers of this host and uid. At least 16 bytes otherwise
  // Off: no Unix socket either way; peers of this host and user must know the secret like any other.
  bool local_socket = true;
  std::vector<std::string> transports;  // for the hello
  std::uint32_t tcp_streams = 2;        // for the hello
  std::uint32_t heartbeat_ms = 2000;    // sign of life over TCP; a peer silent for 4 of its intervals is lost
  std::uint32_t handshake_ms = 5000;    // an accepted connection must have proved itself by then
};

// All control connections of one engine: its listener, its dialing, its I/O thread. Internally synchronized. A forked
// child has none of them (PrivateFd) and must neither use nor destroy the object: its thread is not there.
class Sessions {
 public:
  // Listens on the address given, and on no other: TCP, and an abstract Unix socket named after it. ADDR_IN_USE,
  // PARAM_INVALID (also for a wildcard address: an id must be an address that peers can reach), NOT_FOUND (name).
  // `events` must outlive this object.
  static Result<std::unique_ptr<Sessions>> create(SessionOptions options, SessionEvents& events);
  virtual ~Sessions() = default;

  // The hello we send: the real engine id is hello().engine_id.
  virtual const PeerHello& hello() const = 0;

  // Connects, on this host through the Unix socket, else by TCP with the secret. Never disturbs other sessions: names
  // are resolved on threads of their own, the rest is non-blocking. `done` runs exactly once, on
  // the I/O thread; close() ends it with CLOSED. Errors: PARAM_INVALID (remote_id has no port), TIMEOUT, NOT_FOUND
  // (name), NOT_CONNECTED (nobody listens), ALREADY_CONNECTED, AUTH_FAILED, UNSUPPORTED (other protocol version, both
  // named), or what on_accepted() there said.
  using ConnectDone = std::function<void(Result<std::shared_ptr<Session>>)>;
  virtual void connect_async(std::string_view remote_id, Deadline deadline, ConnectDone done) = 0;
  // The same, blocking. Not from the I/O thread.
  virtual Result<std::shared_ptr<Session>> connect(std::string_view remote_id, Deadline deadline) = 0;

  // Closes the listener and all sessions (Bye, on_lost with CLOSED) and ends the I/O thread; afterwards no event runs.
  // Waits at most 100 ms for peers that do not take the Bye. Idempotent. Not from the I/O thread.
  virtual void close() = 0;
};

}  // namespace onesided
