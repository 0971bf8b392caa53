// What a caller asks for (addresses) becomes what links can carry (checked moves), and every address is checked
// here before a byte moves.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "onesided/engine/connections.h"
#include "onesided/engine/registry.h"
#include "onesided/engine/transfer.h"
#include "onesided/wire/identity.h"

namespace onesided {

// What to move. Bound items name the registrations that their remote addresses belonged to when they were described;
// others are bound to what the peer has registered now. A view: the caller keeps what it points to.
struct TransferList {
  std::span<const TransferItem> items;
  const InstanceId* instance = nullptr;  // set when bound
  std::span<const RegionKey> keys;       // then one an item
  std::span<const RowShape> rows;        // one an item, or empty: all are contiguous
};

// Checked moves, by the link that carries them. A value that moves.
struct Plan {
  struct Part {
    PeerLink* link = nullptr;
    std::vector<Move> moves;
  };
  std::vector<RegionHold> holds;  // local regions, and those of this engine that it reads or writes as its own peer
  std::vector<Part> parts;
  std::uint64_t nbytes = 0;
  bool overlapping = false;  // of this engine with itself: ranges must not be cut

  // Where a plan for a few items lives without an allocation, call after call.
  void clear();
};

// Checks all items and chooses links. PARAM_INVALID: names the item that is wrong and why. STALE: a bound item whose
// registration is gone. May ask the peer once about memory that its table does not show yet, until the deadline.
Result<void> make_plan(Registry& registry, Peer& peer, Op op, const TransferList& list, Deadline deadline, Plan& plan);

}  // namespace onesided
