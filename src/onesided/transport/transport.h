// The interface of transports. The engine handles peers, regions, checks, deadlines and requests; a transport moves
// bytes from one process to another and states which peers and memory it can reach. Each transport is one folder beside
// this file.
//
// A link is one transport to one connected peer, in one of two styles:
//   - CopyLink (self, shm, cma) moves bytes on the thread that calls it; the engine's threads call it piece by piece.
//   - QueueLink (tcp, ascend, ucx) takes a whole batch and completes it from threads of its own.
// The engine has checked everything that it passes to a link: ranges lie in one registered region on each side, sums do
// not overflow, and the engine keeps the local memory registered until the link has reported that it is done.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "onesided/base/align.h"
#include "onesided/base/clock.h"
#include "onesided/base/fd.h"
#include "onesided/base/result.h"
#include "onesided/base/use_count.h"
#include "onesided/device/device.h"
#include "onesided/wire/region_desc.h"

namespace onesided {

enum class Op : std::uint8_t { kRead = 0, kWrite = 1 };

// At most this many bytes are moved between two checks of stop and deadline.
inline constexpr std::uint64_t kPieceBytes = kMiB;

// One contiguous copy; both ends lie in one region each. A value.
struct Move {
  std::uint64_t local = 0;   // address in this process (or on `device`)
  std::uint64_t remote = 0;  // address in the peer
  std::uint64_t nbytes = 0;  // > 0
  RegionKey region;          // the peer's
  std::uint32_t item = 0;    // the caller's items [item, item + items) that it carries; not used by the link
  std::uint32_t items = 1;
  Device* device = nullptr;         // set if the host cannot access `local`: copy through it
  Device* remote_device = nullptr;  // the same for `remote`; set only if the peer is this engine itself
};

// The peer, as authenticated by the handshake. A value.
struct PeerInfo {
  std::string engine_id;                // "127.0.0.1:40213", "[::1]:5000": what connect() takes
  std::uint64_t instance = 0;           // random, new for every engine ever created
  bool local = false;                   // same host and uid, verified over a Unix socket
  int pid = 0;                          // of a local peer, reported by the kernel; otherwise 0
  std::vector<std::string> transports;  // what the peer's engine serves, in its order of preference
  // Of a local peer, after its introduction: the address in its memory where it keeps a random number (0: unknown).
  // Reading that number there proves that the process id still belongs to this peer.
  std::uint64_t proof = 0;
  std::uint64_t proof_address = 0;
};

// The part of an authenticated control connection that transports use. Thread-safe. Implemented by engine/session.
class PeerChannel {
 public:
  virtual ~PeerChannel() = default;
  virtual const PeerInfo& peer() const = 0;
  // False from the moment the peer is known to be lost or disconnected; never true again.
  virtual bool alive() const = 0;
  // Opens one more connection to the peer's listener, authenticated and bound to this session. Its owner's end is
  // passed to the transport of that name through Transport::serve().
  virtual Result<Fd> open_stream(std::string_view transport, Deadline deadline) = 0;
};

// Keeps one of this engine's regions registered while bytes move into or out of it; deregister_mem waits for it.
// Releases on destruction; movable. May be held and released on any thread.
class RegionHold {
 public:
  RegionHold() = default;
  // `uses` has been entered.
  RegionHold(UseCount* uses, Device* device) : uses_(uses), device_(device) {}
  RegionHold(RegionHold&& other) noexcept : uses_(std::exchange(other.uses_, nullptr)), device_(other.device_) {}
  RegionHold& operator=(RegionHold&& other) noexcept {
    if (this != &other) {
      release();
      uses_ = std::exchange(other.uses_, nullptr);
      device_ = other.device_;
    }
    return *this;
  }
  RegionHold(const RegionHold&) = delete;
  RegionHold& operator=(const RegionHold&) = delete;
  ~RegionHold() { release(); }

  void release() {
    if (auto* uses = std::exchange(uses_, nullptr)) uses->leave();
  }
  bool valid() const { return uses_ != nullptr; }
  // Null: the host can access the memory. Otherwise it must be copied through this device.
  Device* device() const { return device_; }

 private:
  UseCount* uses_ = nullptr;
  Device* device_ = nullptr;
};

// This engine's registered memory, for the owner's side of a transport with untrusted requests. Thread-safe.
class RegionAccess {
 public:
  virtual ~RegionAccess() = default;
  // Checks that [address, address + nbytes) lies in the region and that the region is registered, then holds it. STALE:
  // deregistered or replaced. PARAM_INVALID: out of range.
  virtual Result<RegionHold> acquire(RegionKey key, std::uint64_t address, std::uint64_t nbytes, Op op) = 0;
};

// The properties of a peer's region that decide which link can carry it. A value.
struct RegionTraits {
  RegionKey key;
  bool device = false;
  bool host_accessible = true;  // the owner's processor can access it at its address
  bool exported = false;        // it lies in files that other processes may map
};

class Link {
 public:
  virtual ~Link() = default;
  // True if this link can carry the bytes of this region now. Called on the path of every transfer.
  virtual bool carries(const RegionTraits&) const { return true; }
  // Called in order on the session's thread: a file of the peer that other processes may map (open during the call); a
  // region that lies in such files; a region that was deregistered. Used by shm only.
  virtual void share_file(std::uint64_t /*file_id*/, const Fd& /*file*/) {}
  virtual void share_region(const RegionDesc&) {}
  virtual void unshare_region(RegionKey) {}
};

// Thread-safe: several threads copy concurrently.
class CopyLink : public Link {
 public:
  struct Failure {
    std::size_t move = 0;     // index of the first move that failed; those before it are done completely
    std::uint64_t bytes = 0;  // bytes of that move that were done
    Error error;
  };
  // Copies all `moves` (at most kPieceBytes in total) and returns std::nullopt, or stops at the first failure. The
  // engine checks the peer's region table before and after; memory that was unmapped meanwhile must give an error, not
  // a fault.
  virtual std::optional<Failure> copy(Op op, std::span<const Move> moves) = 0;
};

// Receives the results of a batch from the link, on any of the link's threads and never under a lock of the link.
class BatchSink {
 public:
  virtual ~BatchSink() = default;
  // `nbytes` more bytes of moves[move] have arrived; their sum reaches Move::nbytes exactly when the move is done.
  virtual void moved(std::size_t move, std::uint64_t nbytes) = 0;
  // moves[move] ended with this error. The others continue.
  virtual void failed(std::size_t move, Error error) = 0;
  // Called exactly once, as the last call: the link does not access memory of the batch any more. `rest` is the error
  // of every move that neither arrived nor failed (std::nullopt if there is none): TIMEOUT, CANCELLED, PEER_LOST, ...
  virtual void finished(std::optional<Error> rest) = 0;
};

// Work for a QueueLink. Immutable once posted.
struct Batch {
  Op op = Op::kRead;
  std::vector<Move> moves;
  Deadline deadline =
      Deadline::never();  // when it passes, the link ends the batch with TIMEOUT, even if the peer is suspended
  std::shared_ptr<BatchSink> sink;
};

// Thread-safe.
class QueueLink : public Link {
 public:
  // Takes any number of moves and returns without waiting for the peer. Always ends in exactly one finished(), also if
  // the link is already broken. Several batches share the link fairly.
  virtual void post(std::shared_ptr<const Batch> batch) = 0;
  // A thread that waits for the batch takes part in its work for a short time, so that no thread of the link has to be
  // woken. May call the sink. False: there is no work for this thread now.
  virtual bool help(const Batch& /*batch*/) { return false; }
  // Requests an early end. finished() follows within 100 ms, with `why` for the unfinished moves, also if the peer is
  // suspended. A transport that cannot cancel requests closes its connection first. No-op if the batch has finished.
  virtual void cancel(const Batch& batch, Error why) = 0;
};

using AnyLink = std::variant<std::unique_ptr<CopyLink>, std::unique_ptr<QueueLink>>;

// One way to reach peers. Thread-safe. Must outlive its links.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  // Its settings as text for stats(); empty if there are none.
  virtual std::string settings() const { return {}; }
  // Checks whether it could reach this peer. The error is the reason, as text for stats().
  virtual Result<void> reach(const PeerInfo& peer) = 0;
  // Creates a link to the connected peer; destroying the link ends all its work. May fail even if reach() succeeded
  // (for example, ptrace is refused): the engine records the reason and tries the next transport. `peer` is
  // channel->peer() with later data of the peer.
  virtual Result<AnyLink> connect(std::shared_ptr<PeerChannel> channel, const PeerInfo& peer, Deadline deadline) = 0;
  // Owner's side: a peer connected to this engine. Called on the session's thread; must not block.
  virtual void peer_accepted(const PeerInfo&) {}
  // Owner's side: a data stream that a peer opened with open_stream(name()). Takes ownership. Never called for
  // transports without streams.
  virtual void serve(Fd /*stream*/, std::shared_ptr<PeerChannel> /*channel*/) {}
  // Owner's side: the session has ended; its streams must be closed soon. Called on the session's thread; must not
  // block.
  virtual void session_ended(const PeerChannel& /*channel*/) {}
  // Memory was registered (called before register_mem() returns), or is unused and about to be removed (called before
  // deregister_mem() returns). Called without a lock of the engine. For transports that need a registration of their
  // own.
  virtual void memory_registered(const RegionDesc&) {}
  virtual void memory_dropped(RegionKey) {}
  // Owner's side: stops serving and joins its threads; no registered memory is accessed afterwards.
  virtual void stop() {}
};

}  // namespace onesided
