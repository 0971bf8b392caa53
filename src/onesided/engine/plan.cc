#include "onesided/engine/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace onesided {
namespace {

Error at_item(std::size_t item, std::size_t count, const Error& error) {
  return count == 1 ? error : error.with_context(fmt::format("item {} of {}", item, count));
}

// The rows of an item, checked; nothing for one that is contiguous.
Result<std::optional<RowShape>> rows_of(const TransferItem& item, const RowShape& shape) {
  if (shape.row_bytes == 0 && shape.local_pitch == 0 && shape.remote_pitch == 0) return std::optional<RowShape>();
  const auto local = checked_span(item.nbytes, shape.row_bytes, shape.local_pitch);
  const auto remote = checked_span(item.nbytes, shape.row_bytes, shape.remote_pitch);
  if (shape.row_bytes == 0 || !local || !remote || !checked_add(item.local, *local) ||
      !checked_add(item.remote, *remote))
    return Error(
        Status::kParamInvalid,
        fmt::format("{} bytes in rows of {} bytes, {} bytes apart here and {} bytes apart at the peer: expected "
                    "1 to {} whole rows that do not overlap, and addresses that do not wrap around",
                    item.nbytes, shape.row_bytes, shape.local_pitch, shape.remote_pitch, kMaxRows));
  if (item.nbytes == shape.row_bytes || (shape.local_pitch == shape.row_bytes && shape.remote_pitch == shape.row_bytes))
    return std::optional<RowShape>();
  return std::optional(shape);
}

Result<void> check_shape(const TransferList& list) {
  if (list.items.empty()) return Error(Status::kParamInvalid, "the list of ranges is empty");
  ONESIDED_CHECK(list.rows.empty() || list.rows.size() == list.items.size(), "{} shapes for {} items", list.rows.size(),
                 list.items.size());
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const auto& item = list.items[i];
    if (item.nbytes != 0 && item.local != 0 && item.remote != 0 && checked_add(item.local, item.nbytes) &&
        checked_add(item.remote, item.nbytes)) [[likely]]
      continue;
    return at_item(
        i, list.items.size(),
        Error(Status::kParamInvalid, fmt::format("(local {:#x}, remote {:#x}, {} bytes): addresses and length must "
                                                 "be greater than 0 and must not wrap around",
                                                 item.local, item.remote, item.nbytes)));
  }
  return {};
}

Error not_remote(const RegionIndex::Lookup& regions, const Peer& peer, const TransferItem& item) {
  const RegionRow* below = regions.below(item.remote);
  if (below && item.remote - below->address < below->nbytes)
    return {Status::kParamInvalid,
            fmt::format(
                "remote range {:#x} + {} bytes exceeds the region {:#x} + {} bytes of {}; an item must lie inside one "
                "region",
                item.remote, item.nbytes, below->address, below->nbytes, peer.engine_id())};
  return {Status::kParamInvalid, fmt::format("remote range {:#x} + {} bytes is not registered by {}", item.remote,
                                             item.nbytes, peer.engine_id())};
}

// Looks up the peer's regions for all items and fills the remote side of the moves. Returns the index of the first item
// without a region, or std::nullopt.
Result<std::optional<std::size_t>> resolve_remote(Peer& peer, const TransferList& list, std::vector<Move>& moves,
                                                  std::vector<RegionTraits>& traits) {
  RegionIndex::Lookup regions(peer.regions());
  moves.clear();
  traits.clear();
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const TransferItem item = list.items[i];  // read once: what is checked is what moves, whoever writes the list
    Move move;
    if (!list.rows.empty()) {
      const auto rows = rows_of(item, list.rows[i]);
      if (!rows) return at_item(i, list.items.size(), rows.error());
      if (*rows) {
        move.row_bytes = (*rows)->row_bytes;
        move.local_pitch = (*rows)->local_pitch;
        move.remote_pitch = (*rows)->remote_pitch;
      }
    }
    move.local = item.local;
    move.remote = item.remote;
    move.nbytes = item.nbytes;
    const RegionRow* row = regions.find(item.remote, move.remote_span());
    if (!row) return std::optional(i);
    if (list.instance && row->traits.key != list.keys[i])
      return at_item(
          i, list.items.size(),
          Error(Status::kStale, fmt::format("remote {:#x} belongs to region {}.{} now, not to {}.{} as described; "
                                            "ask the owner for new descriptors",
                                            item.remote, row->traits.key.index, row->traits.key.generation,
                                            list.keys[i].index, list.keys[i].generation)));
    move.region = row->traits.key;
    move.item = static_cast<std::uint32_t>(i);
    moves.push_back(move);
    if (traits.empty() || traits.back().key != row->traits.key) traits.push_back(row->traits);
  }
  return std::optional<std::size_t>();
}

Result<void> resolve_all_remote(Peer& peer, const TransferList& list, Deadline deadline, std::vector<Move>& moves,
                                std::vector<RegionTraits>& traits) {
  ONESIDED_TRY_ASSIGN(missing, resolve_remote(peer, list, moves, traits));
  if (!missing) return {};
  // The range may be newly registered and the owner's update still in transit.
  if (peer.sync_table(deadline)) {
    ONESIDED_TRY_ASSIGN(still, resolve_remote(peer, list, moves, traits));
    missing = still;
  }
  if (!missing) return {};
  if (auto reason = peer.unusable_reason()) return *reason;
  TransferItem item = list.items[*missing];
  if (!list.rows.empty()) {
    const RowShape shape = list.rows[*missing];
    item.nbytes = checked_span(item.nbytes, shape.row_bytes, shape.remote_pitch).value_or(item.nbytes);
  }
  if (list.instance)
    return at_item(*missing, list.items.size(),
                   Error(Status::kStale,
                         fmt::format("region {}.{} of {} was deregistered; ask the owner for new descriptors",
                                     list.keys[*missing].index, list.keys[*missing].generation, peer.engine_id())));
  RegionIndex::Lookup regions(peer.regions());
  return at_item(*missing, list.items.size(), not_remote(regions, peer, item));
}

Result<void> resolve_local(Registry& registry, Op op, const TransferList& list, Plan& plan, std::vector<Move>& moves) {
  Registry::LocalLookup locals(registry);
  for (std::size_t i = 0; i < moves.size(); ++i) {
    auto found = locals.hold(moves[i].local, moves[i].local_span(), op);
    if (!found.ok()) return at_item(i, list.items.size(), found.error());
    moves[i].device = found->device;
    if (found->hold.valid()) plan.holds.push_back(std::move(found->hold));
  }
  return {};
}

// The spans of a move with rows meet in one memory. Its rows may lie between one another (columns of one matrix), but
// where one lies on another the order of copies would decide the outcome.
bool rows_collide(const Move& move) {
  const auto low = std::min(move.local, move.remote), high = std::max(move.local, move.remote);
  const auto low_span = low == move.local ? move.local_span() : move.remote_span();
  if (high - low >= low_span || low == high) return low == high && move.local_pitch != move.remote_pitch;
  if (move.local_pitch != move.remote_pitch) return true;
  const auto inside = (high - low) % move.local_pitch;
  return inside < move.row_bytes || move.local_pitch - inside < move.row_bytes;
}

// This engine as its own peer: the other side is held as well, and contiguous ranges may overlap.
Result<void> resolve_own(Registry& registry, Op op, const TransferList& list, Plan& plan, std::vector<Move>& moves) {
  RegionKey held;
  Device* device = nullptr;
  for (auto& move : moves) {
    if (move.region != held) {
      ONESIDED_TRY_ASSIGN(hold, registry.acquire(move.region, move.remote, move.remote_span(), op));
      held = move.region;
      device = hold.device();
      plan.holds.push_back(std::move(hold));
    }
    move.remote_device = device;
    if (!move.contiguous()) {
      if (rows_collide(move))
        return at_item(
            move.item, list.items.size(),
            Error(Status::kParamInvalid,
                  fmt::format("rows of {} bytes from {:#x} on and from {:#x} on overlap in this engine's own "
                              "memory; copy them to other memory first",
                              move.row_bytes, move.local, move.remote)));
      continue;
    }
    const auto low = std::min(move.local, move.remote), high = std::max(move.local, move.remote);
    plan.overlapping = plan.overlapping || (low != high && high - low < move.nbytes);
  }
  return {};
}

void merge_neighbours(std::vector<Move>& moves) {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < moves.size(); ++i) {
    if (continues(moves[kept], moves[i])) {
      moves[kept].nbytes += moves[i].nbytes;
      moves[kept].items += moves[i].items;
    } else if (++kept != i) {
      moves[kept] = moves[i];
    }
  }
  moves.resize(std::min(moves.size(), kept + 1));
}

Result<void> choose_links(Peer& peer, const std::vector<RegionTraits>& traits, std::vector<Move> moves,
                          Deadline deadline, Plan& plan) {
  auto traits_at = traits.begin();
  Plan::Part* part = nullptr;
  RegionKey key;
  for (auto& move : moves) {
    if (move.region != key) {
      key = move.region;
      while (traits_at->key != key) ++traits_at;
      PeerLink* link = peer.link_for(*traits_at, deadline);
      if (!link) return no_link(peer, *traits_at, move.remote);
      auto at =
          std::find_if(plan.parts.begin(), plan.parts.end(), [link](const auto& other) { return other.link == link; });
      if (at == plan.parts.end()) at = plan.parts.insert(at, Plan::Part{link, {}});
      part = &*at;
      // The usual case: all moves go over one link.
      if (plan.parts.size() == 1 && traits.size() == 1) {
        part->moves = std::move(moves);
        return {};
      }
    }
    part->moves.push_back(move);
  }
  return {};
}

}  // namespace

bool continues(const Move& before, const Move& after) {
  return before.contiguous() && after.contiguous() && before.local + before.nbytes == after.local &&
         before.remote + before.nbytes == after.remote && before.region == after.region &&
         before.item + before.items == after.item && before.device == after.device;
}

Error no_link(const Peer& peer, const RegionTraits& traits, std::uint64_t remote_address) {
  if (auto reason = peer.unusable_reason()) return *reason;
  if (!peer.is_live(traits.key))
    return {Status::kStale, fmt::format("remote region {}.{} with {:#x} was deregistered", traits.key.index,
                                        traits.key.generation, remote_address)};
  if (traits.exported)
    return {
        Status::kTimeout,
        fmt::format("{} has not passed the file of the memory at {:#x} yet, and no other transport in use carries it",
                    peer.engine_id(), remote_address)};
  return {Status::kUnsupported, fmt::format("no transport in use towards {} carries {} memory at {:#x}; see stats()",
                                            peer.engine_id(), traits.device ? "device" : "host", remote_address)};
}

void Plan::clear() {
  holds.clear();
  parts.clear();
  nbytes = 0;
  overlapping = false;
}

Result<void> make_plan(Registry& registry, Peer& peer, Op op, const TransferList& list, Deadline deadline, Plan& plan) {
  plan.clear();
  ONESIDED_TRY(check_shape(list));
  if (list.instance && *list.instance != peer.instance())
    return Error(Status::kStale,
                 fmt::format("the descriptors belong to another engine, or to one that ran at {} before it "
                             "was restarted; ask the owner for new ones",
                             peer.engine_id()));
  std::vector<Move> moves;
  std::vector<RegionTraits> traits;
  moves.reserve(list.items.size());
  ONESIDED_TRY(resolve_all_remote(peer, list, deadline, moves, traits));
  ONESIDED_TRY(resolve_local(registry, op, list, plan, moves));
  if (peer.is_self()) ONESIDED_TRY(resolve_own(registry, op, list, plan, moves));
  for (const auto& move : moves) plan.nbytes += move.nbytes;
  ONESIDED_TRY(choose_links(peer, traits, std::move(moves), deadline, plan));
  for (auto& part : plan.parts)
    if (std::holds_alternative<std::unique_ptr<CopyLink>>(part.link->link) && !plan.overlapping)
      merge_neighbours(part.moves);
  return {};
}

}  // namespace onesided
