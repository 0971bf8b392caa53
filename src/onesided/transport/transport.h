// The engine knows peers, regions, checks, deadlines and requests; how bytes get from one process to another is a
// transport's business, and each says itself what it can reach. One transport is one folder beside this file.
//
// A link is one transport to one connected peer, in one of two styles:
//   - CopyLink (self, shm, cma) moves bytes on the thread that calls it; the engine's threads call it piece by piece.
//   - QueueLink (tcp, ascend, ucx) takes a whole batch and completes it from threads of its own.
// Everything a link is given has been checked by the engine: ranges lie in one registered region on each side, sums do
// not wrap, and the engine holds the local memory registered until the link has said that it is done with it.
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
#include "onesided/base/rows.h"
#include "onesided/base/use_count.h"
#include "onesided/device/device.h"
#include "onesided/wire/region_desc.h"

namespace onesided {

enum class Op : std::uint8_t { kRead = 0, kWrite = 1 };

// No more than this is moved between two looks at stop and deadline.
inline constexpr std::uint64_t kPieceBytes = kMiB;

// One copy, contiguous or of rows at a fixed distance; both ends lie in one region each. A value.
//
// The bytes of a move are counted row after row: byte b of one with rows is byte b % row_bytes of row b / row_bytes.
struct Move {
  std::uint64_t local = 0;   // address in this process (or on `device`)
  std::uint64_t remote = 0;  // address in the peer
  std::uint64_t nbytes = 0;  // > 0, of all rows together
  RegionKey region;          // the peer's
  std::uint32_t item = 0;    // the caller's items [item, item + items) that it carries; no business of the link's
  std::uint32_t items = 1;
  Device* device = nullptr;         // set when the host cannot touch `local`: copy through it
  Device* remote_device = nullptr;  // the same of `remote`; only where the peer is this engine itself
  std::uint64_t row_bytes = 0;      // 0: contiguous on both sides; else nbytes is a multiple of it
  std::uint64_t local_pitch = 0;    // from one row to the next, at least row_bytes
  std::uint64_t remote_pitch = 0;

  bool contiguous() const { return row_bytes == 0; }
  std::uint64_t local_span() const { return span_of(nbytes, row_bytes, local_pitch); }
  std::uint64_t remote_span() const { return span_of(nbytes, row_bytes, remote_pitch); }

  // The bytes [from, from + n) as a move of its own, with the greatest n <= limit that whole rows, or a part of one,
  // allow. from < nbytes, limit > 0.
  Move part(std::uint64_t from, std::uint64_t limit) const {
    Move cut = *this;
    limit = std::min(limit, nbytes - from);
    if (row_bytes == 0) {
      cut.local += from;
      cut.remote += from;
      cut.nbytes = limit;
      return cut;
    }
    const std::uint64_t row = from / row_bytes, inside = from % row_bytes;
    cut.local += row * local_pitch + inside;
    cut.remote += row * remote_pitch + inside;
    if (inside == 0 && limit > row_bytes) {
      cut.nbytes = limit - limit % row_bytes;
      return cut;
    }
    cut.nbytes = std::min(limit, row_bytes - inside);
    cut.row_bytes = cut.local_pitch = cut.remote_pitch = 0;
    return cut;
  }

  // Calls run(local, remote, nbytes) for each run that is contiguous on both sides, in order.
  template <typename Run>
  void each_run(Run run) const {
    if (row_bytes == 0) return run(local, remote, nbytes);
    for (std::uint64_t done = 0, row = 0; done < nbytes; done += row_bytes, ++row)
      run(local + row * local_pitch, remote + row * remote_pitch, row_bytes);
  }
};

// Who is at the other end, as proved by the handshake. A value.
struct PeerInfo {
  std::string engine_id;                // "127.0.0.1:40213", "[::1]:5000": what connect() takes
  std::uint64_t instance = 0;           // random, new for every engine ever created
  bool local = false;                   // same host and uid, proved over a Unix socket
  int pid = 0;                          // of a local peer, as the kernel says; else 0
  std::vector<std::string> transports;  // what the peer's engine serves, in its order of preference
  // Of a local peer, once it has introduced itself: a random number that it keeps at this address of its own memory
  // (0: unknown). Reading it there proves that a process id still means this peer.
  std::uint64_t proof = 0;
  std::uint64_t proof_address = 0;
};

// What a transport may ask of the authenticated control connection to a peer. Thread-safe. Implemented by
// engine/session.
class PeerChannel {
 public:
  virtual ~PeerChannel() = default;
  virtual const PeerInfo& peer() const = 0;
  // False from the moment the peer is known dead or gone; never true again.
  virtual bool alive() const = 0;
  // One more connection to the peer's listener, authenticated and bound to this session; its owner side is handed to
  // the transport of that name through Transport::serve().
  virtual Result<Fd> open_stream(std::string_view transport, Deadline deadline) = 0;
};

// Keeps one of this engine's regions registered while bytes move into or out of it. Releases on destruction; moves.
// May be held and released on any thread; deregister_mem waits for it.
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
  // Null: the host may touch the memory. Else it must be copied through this device.
  Device* device() const { return device_; }

 private:
  UseCount* uses_ = nullptr;
  Device* device_ = nullptr;
};

// This engine's registered memory, for the owner's side of a transport whose peers may lie. Thread-safe.
class RegionAccess {
 public:
  virtual ~RegionAccess() = default;
  // Checks that [address, address + nbytes) lies in the region and that the region is still registered, and holds it.
  // STALE: deregistered or replaced. PARAM_INVALID: out of range.
  virtual Result<RegionHold> acquire(RegionKey key, std::uint64_t address, std::uint64_t nbytes, Op op) = 0;
};

// What of a peer's region decides which link can carry it. A value.
struct RegionTraits {
  RegionKey key;
  bool device = false;
  bool host_accessible = true;  // the owner's processor can touch it at its address
  bool exported = false;        // it lies in files that other processes may map
};

class Link {
 public:
  virtual ~Link() = default;
  // The bytes of this region can go over this link now. Both are asked on the path of every transfer.
  virtual bool carries(const RegionTraits&) const { return true; }
  // Told in order, from the session's thread: a file of the peer's that other processes may map (open during the call);
  // a region that lies in such files; a region that is gone. Only shm cares.
  virtual void share_file(std::uint64_t /*file_id*/, const Fd& /*file*/) {}
  virtual void share_region(const RegionDesc&) {}
  virtual void unshare_region(RegionKey) {}
};

// Thread-safe: several threads copy at once.
class CopyLink : public Link {
 public:
  struct Failure {
    std::size_t move = 0;     // index of the first move that failed; those before it are wholly done
    std::uint64_t bytes = 0;  // how much of that move was done
    Error error;
  };
  // Moves all of `moves` (at most kPieceBytes in sum) and returns nothing, or stops at the first that fails. The engine
  // checks the peer's region table before and after; memory that has vanished meanwhile must give an error, not a
  // fault.
  virtual std::optional<Failure> copy(Op op, std::span<const Move> moves) = 0;
};

// Told about a batch by the link that runs it, from any of the link's threads, never under a lock of the link's.
class BatchSink {
 public:
  virtual ~BatchSink() = default;
  // `nbytes` more of moves[move] have arrived; summed up they reach Move::nbytes exactly when the move is done.
  virtual void moved(std::size_t move, std::uint64_t nbytes) = 0;
  // moves[move] ended with this error. The others go on.
  virtual void failed(std::size_t move, Error error) = 0;
  // Exactly once, last: the link touches no memory of the batch any more. `rest` is the fate of every move that neither
  // arrived nor failed (nothing when there is none): TIMEOUT, CANCELLED, PEER_LOST, ...
  virtual void finished(std::optional<Error> rest) = 0;
};

// Work for a QueueLink. Immutable once posted.
struct Batch {
  Op op = Op::kRead;
  std::vector<Move> moves;
  Deadline deadline = Deadline::never();  // the link ends the batch with TIMEOUT when it passes, whatever the peer does
  std::shared_ptr<BatchSink> sink;
};

// Thread-safe.
class QueueLink : public Link {
 public:
  // Whether moves may have rows. If not, the engine makes each row a move.
  virtual bool takes_rows() const { return false; }
  // Takes any number of moves and returns without waiting for the peer. Always ends in exactly one finished(), also
  // when the link is already broken. Several batches share the link fairly.
  virtual void post(std::shared_ptr<const Batch> batch) = 0;
  // Lends the link a thread that waits for the batch: works for it here, a moment at a time, instead of waking a thread
  // of the link's. False: there is nothing to do on this thread now. The sink may be told from it.
  virtual bool help(const Batch& /*batch*/) { return false; }
  // Asks for an early end; finished() follows within 100 ms with `why` for what is left, also if the peer is frozen. A
  // transport that cannot call work back tears its connection down first. No-op on a batch that has finished.
  virtual void cancel(const Batch& batch, Error why) = 0;
};

using AnyLink = std::variant<std::unique_ptr<CopyLink>, std::unique_ptr<QueueLink>>;

// A way to reach peers. Thread-safe. Outlives its links.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  // How it is set up, in words for stats(); empty where there is nothing to choose.
  virtual std::string settings() const { return {}; }
  // Whether it could serve this peer; if not, why, in words for stats().
  virtual Result<void> reach(const PeerInfo& peer) = 0;
  // A link to the connected peer; destroying it ends all its work. May fail where reach() hoped (ptrace refused): the
  // engine notes why and tries the next transport. `peer` is channel->peer() and what the peer has told since.
  virtual Result<AnyLink> connect(std::shared_ptr<PeerChannel> channel, const PeerInfo& peer, Deadline deadline) = 0;
  // Owner's side: a peer connected to this engine. From the session's thread; must not block.
  virtual void peer_accepted(const PeerInfo&) {}
  // Owner's side: a data stream that a peer opened with open_stream(name()). Takes it over. Transports without streams
  // are never called.
  virtual void serve(Fd /*stream*/, std::shared_ptr<PeerChannel> /*channel*/) {}
  // Owner's side: the session that these streams belong to has ended; its streams are closed soon. From the session's
  // thread; must not block.
  virtual void session_ended(const PeerChannel& /*channel*/) {}
  // This engine registered memory, before register_mem() returns; and is forgetting it, once nothing uses it, before
  // deregister_mem() returns. Called under no lock of the engine's. For transports that must register by themselves.
  virtual void memory_registered(const RegionDesc&) {}
  virtual void memory_dropped(RegionKey) {}
  // Owner's side: stops serving, joins its threads; no registered memory is touched afterwards.
  virtual void stop() {}
};

}  // namespace onesided
