// Rule 2 (no bytes of freed memory) in one place: every copy over a CopyLink happens between two checks of the owner's
// table, and every write under a lease. docs/threading.md draws the races.
#pragma once

#include <cstdint>
#include <span>

#include "onesided/engine/lease.h"
#include "onesided/engine/region_table.h"
#include "onesided/transport/transport.h"

namespace onesided {

// The path of copies to one peer. A value; what it points to must outlive it.
struct CopyPath {
  CopyLink* link = nullptr;
  const RegionTable* table = nullptr;
  LeasePage* leases = nullptr;           // null: the peer is this engine; its region is held instead
  const PeerChannel* channel = nullptr;  // null: the peer is this engine
};

// Receives the result of each move, on the copying thread.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // Bytes [from, from + nbytes) of moves[move] have arrived.
  virtual void arrived(std::size_t move, std::uint64_t from, std::uint64_t nbytes) = 0;
  // Byte `at` of moves[move] could not be moved. Returns the offset to continue at: at least at + 1; move.nbytes skips
  // the rest of the move.
  virtual std::uint64_t refused(std::size_t move, std::uint64_t at, const Error& error) = 0;
};

// Moves at most kPieceBytes. Thread-safe; blocks for the copy only.
void move_piece(const CopyPath& path, Op op, std::span<const Move> moves, PieceSink& sink);

}  // namespace onesided
