// Rule 2 (no bytes of memory that is gone) in one place: every copy over a CopyLink happens between two looks at
// the owner's table, and every write under a lease. docs/threading.md draws the races.
#pragma once

#include <cstdint>
#include <span>

#include "onesided/engine/lease.h"
#include "onesided/engine/region_table.h"
#include "onesided/transport/transport.h"

namespace onesided {

// Where copies to one peer go. A value; what it points to outlives it.
struct CopyPath {
  CopyLink* link = nullptr;
  const RegionTable* table = nullptr;
  LeasePage* leases = nullptr;           // null: the peer is this engine; its region is held instead
  const PeerChannel* channel = nullptr;  // null: the peer is this engine
};

// Told what became of each move, on the thread that copies.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // Bytes [from, from + nbytes) of moves[move] have arrived.
  virtual void arrived(std::size_t move, std::uint64_t from, std::uint64_t nbytes) = 0;
  // Byte `at` of moves[move] could not be moved. Returns from where to go on: at least at + 1, move.nbytes to give it
  // up.
  virtual std::uint64_t refused(std::size_t move, std::uint64_t at, const Error& error) = 0;
};

// Moves at most kPieceBytes. Thread-safe; blocks for the copy only.
void move_piece(const CopyPath& path, Op op, std::span<const Move> moves, PieceSink& sink);

}  // namespace onesided
