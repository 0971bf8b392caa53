// Sessions: one authenticated, ordered control connection between two engines. Over it they introduce themselves,
// publish regions, pass descriptors and detect a dead peer; data uses other connections. This is the interface for the
// rest of the engine. docs/security.md states which peers may connect, docs/wire_format.md the bytes.
//
// Direction: a session belongs to the side that dialed. If both sides connect at the same time, there are two sessions,
// one in each direction; neither waits for the other, and no tie has to be broken. To one peer instance there is at
// most one dialed session: a second connect() finds the first (ALREADY_CONNECTED). An accepted session never ends
// another one: the instance is the peer's own claim, and a claim must not end another peer's session. A session that
// its peer has abandoned ends when its connection ends or its heartbeats stop.
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

// One control connection. Internally synchronized; owned jointly by the engine and the I/O thread.
class Session : public PeerChannel {
 public:
  // Never reused in this process.
  virtual std::uint64_t id() const = 0;
  // The authenticated peer: over a Unix socket by the kernel (uid and pid), otherwise by the shared secret.
  virtual const PeerHello& hello() const = 0;
  // True if this engine dialed (and may transfer); false if the peer did.
  virtual bool initiated() const = 0;
  // From PeerChannel: peer() is the part of the hello that transports see; peer().local: over a Unix socket, same host
  // and uid, descriptors can be attached. alive(): false before on_lost() runs. open_stream(): dialer only (UNSUPPORTED
  // otherwise); a non-blocking TCP connection, both ends proved to belong to this session; blocks; TIMEOUT, PEER_LOST,
  // AUTH_FAILED. The peer's engine gets its end through on_data_stream().

  // True if the process at the other end of a local session has ended, so that none of its threads can run. Remains
  // valid after the session's end, which alone does not prove it. Never true if the kernel cannot report it.
  virtual bool process_ended() const = 0;

  // Queues the message; it arrives exactly once and in order, or the session is lost. Takes ownership of the
  // descriptors. Blocks while more than 8 MiB are queued, until the deadline (TIMEOUT); on the I/O thread it never
  // blocks. PARAM_INVALID: the limits of wire/control.h are exceeded, or descriptors on a TCP session. If the session
  // is lost: the reason of the loss.
  virtual Result<void> send(const ControlMessage& message, std::vector<Fd> fds = {},
                            Deadline deadline = Deadline::never()) = 0;
  // Blocks until at most 8 MiB are queued. Errors: TIMEOUT; the reason if the session is lost or stopped. Must not be
  // called on the I/O thread.
  virtual Result<void> wait_for_capacity(Deadline deadline) = 0;
  // True if all queued messages have been handed to the kernel. Each change back to true is reported as on_drained().
  virtual bool drained() const = 0;
  // From now on send() and wait_for_capacity() return `why`, also in threads that are blocked in them. close() still
  // sends Bye.
  virtual void stop_sending(const Error& why) = 0;

  // Sends Bye after the queued messages and closes. on_lost() follows (CLOSED). Idempotent; does not block.
  virtual void close(std::string_view why) = 0;
};

// Events of an engine's sessions. All calls come from its one I/O thread; they must not block and may call send() and
// close(). For one session: on_accepted (if the peer dialed), any number of on_message and on_drained, then on_lost
// exactly once, then nothing.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  // A peer dialed this engine and was authenticated. An error refuses it: the peer's connect() fails with that error.
  // Messages sent from this call are the first that the peer receives after its connect() succeeded.
  virtual Result<void> on_accepted(const std::shared_ptr<Session>& session) = 0;
  // connect() succeeded; called before it returns and before the first on_message().
  virtual void on_connected(const std::shared_ptr<Session>& session) = 0;
  virtual void on_message(const std::shared_ptr<Session>& session, ControlMessage message, std::vector<Fd> fds) = 0;
  // All queued messages have been sent. May be called when none was queued.
  virtual void on_drained(const std::shared_ptr<Session>& session) = 0;
  // PEER_LOST: the peer's process ended, its heartbeats stopped, or the connection broke. NOT_CONNECTED: it sent Bye.
  // CLOSED: this engine closed. PARAM_INVALID: it sent a message that cannot be decoded. A failed connect() is not
  // reported here.
  virtual void on_lost(const std::shared_ptr<Session>& session, const Error& reason) = 0;
  // The peer called open_stream(transport) on its end of an accepted session (non-blocking, connected).
  virtual void on_data_stream(const std::shared_ptr<Session>& session, std::string_view transport, Fd stream) = 0;
};

struct SessionOptions {
  std::string local_engine = "127.0.0.1";  // Endpoint; no port or port 0: the kernel chooses one
  std::string
      secret;  // as read_secret_file() gives it; empty: only peers of this host and uid. At least 16 bytes otherwise
  // Off: no Unix socket in either direction; peers of this host and user must prove the secret like any other.
  bool local_socket = true;
  std::vector<std::string> transports;  // for the hello
  std::uint32_t tcp_streams = 2;        // for the hello
  std::uint32_t heartbeat_ms = 2000;    // interval over TCP; a peer that sends nothing for 4 of its intervals is lost
  std::uint32_t handshake_ms = 5000;    // time limit to authenticate an accepted connection
};

// All control connections of one engine: its listener, its dialing, its I/O thread. Internally synchronized. A forked
// child has none of the connections (PrivateFd) and must neither use nor destroy the object, because the I/O thread
// does not exist there.
class Sessions {
 public:
  // Listens on the given address only: TCP, and an abstract Unix socket named after it. Errors: ADDR_IN_USE,
  // PARAM_INVALID (also for a wildcard address: an id must be an address that peers can reach), NOT_FOUND (name).
  // `events` must outlive this object.
  static Result<std::unique_ptr<Sessions>> create(SessionOptions options, SessionEvents& events);
  virtual ~Sessions() = default;

  // The hello that this engine sends. hello().engine_id is the id with the actual port.
  virtual const PeerHello& hello() const = 0;

  // Connects: on this host through the Unix socket, otherwise by TCP with the secret. Does not delay other sessions:
  // names are resolved on separate threads, everything else is non-blocking. `done` is called exactly once, on the I/O
  // thread; close() ends the attempt with CLOSED. Errors: PARAM_INVALID (remote_id has no port), TIMEOUT, NOT_FOUND
  // (name), NOT_CONNECTED (no engine listens), ALREADY_CONNECTED, AUTH_FAILED, UNSUPPORTED (another protocol version;
  // both are named), or the error of the peer's on_accepted().
  using ConnectDone = std::function<void(Result<std::shared_ptr<Session>>)>;
  virtual void connect_async(std::string_view remote_id, Deadline deadline, ConnectDone done) = 0;
  // The same, blocking. Must not be called on the I/O thread.
  virtual Result<std::shared_ptr<Session>> connect(std::string_view remote_id, Deadline deadline) = 0;

  // Closes the listener and all sessions (Bye, on_lost with CLOSED) and ends the I/O thread; afterwards no event is
  // called. Waits at most 100 ms for peers that do not acknowledge the Bye. Idempotent. Must not be called on the I/O
  // thread.
  virtual void close() = 0;
};

}  // namespace onesided
