// Turns the caller's transfer list (addresses) into checked moves that links can carry. Every address is checked here
// before a byte moves.
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
// other items are bound to the peer's current registrations. A view: the caller keeps ownership.
struct TransferList {
  std::span<const TransferItem> items;
  const InstanceId* instance = nullptr;  // set when bound
  std::span<const RegionKey> keys;       // then one per item
};

// Checked moves, grouped by the link that carries them. A movable value.
struct Plan {
  struct Part {
    PeerLink* link = nullptr;
    std::vector<Move> moves;
  };
  std::vector<RegionHold> holds;  // local regions, and those of this engine that it reads or writes as its own peer
  std::vector<Part> parts;
  std::uint64_t nbytes = 0;
  bool overlapping = false;  // of this engine with itself: ranges must not be cut

  // Empties the plan but keeps its storage, so that plans of a few items need no allocation.
  void clear();
};

// Checks all items and chooses links. PARAM_INVALID: an invalid item, named with the reason. STALE: a bound item whose
// registration has ended. If the peer's table does not contain a range, the peer is asked once, until the deadline.
Result<void> make_plan(Registry& registry, Peer& peer, Op op, const TransferList& list, Deadline deadline, Plan& plan);

// For those who build a plan: `after` goes on where `before` ends, on both sides and in the caller's items.
bool continues(const Move& before, const Move& after);
// Why no transport in use carries this region of the peer's. STALE, TIMEOUT, UNSUPPORTED, or what ended the peer.
Error no_link(const Peer& peer, const RegionTraits& traits, std::uint64_t remote_address);

}  // namespace onesided
