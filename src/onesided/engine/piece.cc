#include "onesided/engine/piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace onesided {
namespace {

// A lease on one of the peer's regions, for a scope.
class WriteLease {
 public:
  WriteLease(LeasePage* leases, RegionKey key) : leases_(leases), cell_(leases ? leases->take(key) : 0) {}
  ~WriteLease() {
    if (leases_) leases_->give_back(cell_);
  }
  WriteLease(const WriteLease&) = delete;
  WriteLease& operator=(const WriteLease&) = delete;
  bool revoked() const { return leases_ && leases_->revoked(); }

 private:
  LeasePage* const leases_;
  const std::size_t cell_;
};

Error peer_lost(const CopyPath& path) {
  return {Status::kPeerLost, fmt::format("the connection to peer {} was lost", path.channel->peer().engine_id)};
}

bool all_live(const RegionTable& table, std::span<const Move> moves) {
  RegionKey key;
  for (const auto& move : moves) {
    if (move.region == key) continue;
    key = move.region;
    if (!table.live(key)) return false;
  }
  return true;
}

Error stale(const Move& move) {
  return {Status::kStale,
          fmt::format("remote region {}.{} with {:#x} was deregistered; ask the owner for new descriptors",
                      move.region.index, move.region.generation, move.remote)};
}

// The link's error may be only a consequence of a cause that is known more exactly here.
Error cause(const CopyPath& path, const Move& move, const Error& error) {
  if (path.channel && !path.channel->alive()) return peer_lost(path);
  return path.table->live(move.region) ? error : stale(move);
}

void give_up(std::span<const Move> moves, std::size_t first, PieceSink& sink, const Error& error) {
  for (std::size_t i = 0; i < moves.size(); ++i)
    for (std::uint64_t at = 0; at < moves[i].nbytes;) at = sink.refused(first + i, at, error);
}

// Copies moves of one region, item by item after a failure. `first` is the index of moves[0] for the sink. `known`, if
// present, has failed already and is not repeated.
void move_run(const CopyPath& path, Op op, std::span<const Move> moves, std::size_t first,
              const std::optional<CopyLink::Failure>& known, PieceSink& sink) {
  const WriteLease lease(op == Op::kWrite ? path.leases : nullptr, moves[0].region);
  if (lease.revoked()) return give_up(moves, first, sink, peer_lost(path));
  if (!path.table->live(moves[0].region)) return give_up(moves, first, sink, stale(moves[0]));
  struct Part {
    std::size_t move;
    std::uint64_t from, nbytes;
  };
  std::vector<Part> arrived;
  std::size_t i = 0;
  std::uint64_t from = 0;  // where moves[i] continues
  const std::size_t failed_before = known && known->move >= first ? known->move - first : moves.size();
  while (i < moves.size()) {
    Move rest = moves[i];
    rest.local += from;
    rest.remote += from;
    rest.nbytes -= from;
    // Whole moves are copied in one call; the rest of a move that failed is copied alone.
    const std::size_t end =
        from > 0 ? i + 1 : (i < failed_before ? std::min(moves.size(), failed_before) : moves.size());
    std::optional<CopyLink::Failure> failure;
    if (i == failed_before && from == 0)
      failure = CopyLink::Failure{0, known->bytes, known->error};
    else
      failure = from == 0 ? path.link->copy(op, moves.subspan(i, end - i)) : path.link->copy(op, std::span(&rest, 1));
    const std::size_t whole = failure ? failure->move : end - i;
    for (std::size_t k = 0; k < whole; ++k, ++i) {
      arrived.push_back({i, from, moves[i].nbytes - from});
      from = 0;
    }
    if (!failure) continue;
    if (failure->bytes > 0) arrived.push_back({i, from, failure->bytes});
    from = sink.refused(first + i, from + failure->bytes, cause(path, moves[i], failure->error));
    if (from < moves[i].nbytes) continue;
    from = 0;
    ++i;
  }
  // A lease makes the owner wait. A READ has none, so it must check afterwards that the region is still live.
  if (op == Op::kRead && !path.table->live(moves[0].region)) {
    for (const auto& part : arrived)
      for (std::uint64_t at = part.from; at < part.from + part.nbytes;)
        at = sink.refused(first + part.move, at, stale(moves[part.move]));
    return;
  }
  for (const auto& part : arrived) sink.arrived(first + part.move, part.from, part.nbytes);
}

}  // namespace

void move_piece(const CopyPath& path, Op op, std::span<const Move> moves, PieceSink& sink) {
  if (path.channel && !path.channel->alive()) return give_up(moves, 0, sink, peer_lost(path));
  // The usual case is one call of the link for any number of regions. After an error the moves that have not failed are
  // read again, region by region.
  std::optional<CopyLink::Failure> failure;
  if (op == Op::kRead && all_live(*path.table, moves)) {
    failure = path.link->copy(op, moves);
    if (!failure && all_live(*path.table, moves)) {
      for (std::size_t i = 0; i < moves.size(); ++i) sink.arrived(i, 0, moves[i].nbytes);
      return;
    }
  }
  for (std::size_t i = 0; i < moves.size();) {
    std::size_t end = i + 1;
    while (end < moves.size() && moves[end].region == moves[i].region) ++end;
    move_run(path, op, moves.subspan(i, end - i), i, failure, sink);
    i = end;
  }
}

}  // namespace onesided
