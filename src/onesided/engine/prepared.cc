#include "onesided/engine/prepared.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace onesided {
namespace {

constexpr std::uint32_t kUnused = ~0U;

Result<void> check_shape(std::span<const PreparedList::Address> ranges) {
  if (ranges.empty()) return Error(Status::kParamInvalid, "the list of ranges is empty");
  if (ranges.size() >= kUnused)
    return Error(Status::kParamInvalid, fmt::format("{} ranges: at most {}", ranges.size(), kUnused - 1));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto& [address, nbytes] = ranges[i];
    if (address == 0 || nbytes == 0 || !checked_add(address, nbytes))
      return Error(Status::kParamInvalid,
                   fmt::format("range {} of {}: ({:#x}, {} bytes): address and length must be greater than 0 and must "
                               "not wrap around",
                               i, ranges.size(), address, nbytes));
  }
  return {};
}

template <typename Integer>
Result<void> append_checked(std::span<const Integer> indices, std::size_t size, std::string_view side,
                            std::vector<std::uint32_t>& checked) {
  checked.reserve(indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const Integer index = indices[i];                            // once: another thread may be changing the array
    if (static_cast<std::uint64_t>(index) >= size) [[unlikely]]  // also what is negative
      return Error(Status::kParamInvalid,
                   fmt::format("{} index {} at place {}: the list has {} ranges", side, index, i, size));
    checked.push_back(static_cast<std::uint32_t>(index));
  }
  return {};
}

Result<std::vector<std::uint32_t>> checked(const Indices& indices, std::size_t size, std::string_view side) {
  std::vector<std::uint32_t> numbers;
  ONESIDED_TRY(std::visit([&](const auto& span) { return append_checked(span, size, side, numbers); }, indices));
  return numbers;
}

Error stale(const PreparedList& list, RegionKey key) {
  return {Status::kStale, fmt::format("{} list: region {}.{} was deregistered; prepare a new list",
                                      list.is_local() ? "local" : "remote", key.index, key.generation)};
}

// What a transfer needs of one region of a list, filled in when its first range is met.
struct LocalUse {
  bool held = false;
  Device* device = nullptr;
};
struct RemoteUse {
  std::uint32_t part = kUnused;  // in Plan::parts
  Device* device = nullptr;      // where the peer is this engine itself
};

// Builds the moves of one transfer. Confined to one call.
class Builder {
 public:
  Builder(Registry& registry, Peer& peer, Op op, const PreparedList& local, const PreparedList& remote,
          Deadline deadline, Plan& plan)
      : registry_(registry),
        peer_(peer),
        op_(op),
        local_(local),
        remote_(remote),
        deadline_(deadline),
        plan_(plan),
        locals_(local.regions().size()),
        remotes_(remote.regions().size()) {}

  Result<void> build(std::span<const std::uint32_t> ours, std::span<const std::uint32_t> theirs) {
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const auto& here = local_.ranges()[ours[i]];
      const auto& there = remote_.ranges()[theirs[i]];
      if (!locals_[here.region].held) [[unlikely]]
        ONESIDED_TRY(hold_local(here));
      if (remotes_[there.region].part == kUnused) [[unlikely]]
        ONESIDED_TRY(find_remote(there));
      plan_.nbytes += here.nbytes;
      add_move(here, there, static_cast<std::uint32_t>(i));
    }
    return {};
  }

 private:
  Result<void> hold_local(const PreparedList::Range& range) {
    // The local side of a READ is written.
    const RegionKey key = local_.regions()[range.region];
    auto hold = registry_.acquire(key, range.address, range.nbytes, op_ == Op::kRead ? Op::kWrite : Op::kRead);
    if (hold.status() == Status::kStale) return stale(local_, key);
    if (!hold.ok()) return hold.error();
    locals_[range.region] = {true, hold->device()};
    plan_.holds.push_back(std::move(*hold));
    return {};
  }

  std::optional<RegionTraits> traits_of(const PreparedList::Range& range) {
    const RegionKey key = remote_.regions()[range.region];
    RegionIndex::Lookup regions(peer_.regions());
    const RegionRow* row = regions.find(range.address, range.nbytes);
    if (!row || row->traits.key != key) return std::nullopt;
    return row->traits;
  }

  Result<void> find_remote(const PreparedList::Range& range) {
    const RegionKey key = remote_.regions()[range.region];
    auto traits = traits_of(range);
    if (!traits && peer_.sync_table(deadline_)) traits = traits_of(range);
    if (!traits) {
      if (auto reason = peer_.unusable_reason()) return *reason;
      return stale(remote_, key);
    }
    RemoteUse& use = remotes_[range.region];
    if (peer_.is_self()) {
      auto hold = registry_.acquire(key, range.address, range.nbytes, op_);
      if (!hold.ok()) return hold.error();
      use.device = hold->device();
      plan_.holds.push_back(std::move(*hold));
    }
    PeerLink* link = peer_.link_for(*traits, deadline_);
    if (!link) return no_link(peer_, *traits, range.address);
    auto at = std::find_if(plan_.parts.begin(), plan_.parts.end(), [&](const auto& part) { return part.link == link; });
    if (at == plan_.parts.end()) at = plan_.parts.insert(at, Plan::Part{link, {}});
    use.part = static_cast<std::uint32_t>(at - plan_.parts.begin());
    return {};
  }

  void add_move(const PreparedList::Range& here, const PreparedList::Range& there, std::uint32_t item) {
    const RemoteUse& use = remotes_[there.region];
    auto& part = plan_.parts[use.part];
    Move move;
    move.local = here.address;
    move.remote = there.address;
    move.nbytes = here.nbytes;
    move.region = remote_.regions()[there.region];
    move.item = item;
    move.device = locals_[here.region].device;
    move.remote_device = use.device;
    if (peer_.is_self()) {
      const auto low = std::min(move.local, move.remote), high = std::max(move.local, move.remote);
      plan_.overlapping = plan_.overlapping || (low != high && high - low < move.nbytes);
    } else if (!part.moves.empty() && std::holds_alternative<std::unique_ptr<CopyLink>>(part.link->link) &&
               continues(part.moves.back(), move)) {
      part.moves.back().nbytes += move.nbytes;
      ++part.moves.back().items;
      return;
    }
    part.moves.push_back(move);
  }

  Registry& registry_;
  Peer& peer_;
  const Op op_;
  const PreparedList& local_;
  const PreparedList& remote_;
  const Deadline deadline_;
  Plan& plan_;
  std::vector<LocalUse> locals_;
  std::vector<RemoteUse> remotes_;
};

}  // namespace

void PreparedList::add(const Address& range, RegionKey region) {
  // Ranges of one region mostly come together; a list has few regions.
  if (regions_.empty() || regions_[ranges_.back().region] != region) {
    const auto at = std::find(regions_.begin(), regions_.end(), region);
    const auto number = static_cast<std::uint32_t>(at - regions_.begin());
    if (at == regions_.end()) regions_.push_back(region);
    ranges_.push_back({range.first, range.second, number});
    return;
  }
  ranges_.push_back({range.first, range.second, ranges_.back().region});
}

Result<std::shared_ptr<const PreparedList>> PreparedList::local(Registry& registry, InstanceId instance,
                                                                std::span<const Address> ranges) {
  ONESIDED_TRY(check_shape(ranges));
  std::shared_ptr<PreparedList> list(new PreparedList({}, instance));
  list->ranges_.reserve(ranges.size());
  std::optional<RegionDesc> region;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto& [address, nbytes] = ranges[i];
    if (!region || !range_within(address, nbytes, region->address, region->nbytes)) {
      auto found = registry.describe(address, nbytes);
      if (!found.ok()) return found.error().with_context(fmt::format("range {} of {}", i, ranges.size()));
      region = *std::move(found);
    }
    list->add(ranges[i], region->key);
  }
  return std::shared_ptr<const PreparedList>(std::move(list));
}

Result<std::shared_ptr<const PreparedList>> PreparedList::remote(Peer& peer, std::span<const Address> ranges,
                                                                 Deadline deadline) {
  ONESIDED_TRY(check_shape(ranges));
  std::shared_ptr<PreparedList> list(new PreparedList(peer.engine_id(), peer.instance()));
  list->ranges_.reserve(ranges.size());
  bool synced = false;
  for (std::size_t i = 0; i < ranges.size();) {
    {
      RegionIndex::Lookup regions(peer.regions());
      for (; i < ranges.size(); ++i) {
        const RegionRow* row = regions.find(ranges[i].first, ranges[i].second);
        if (!row) break;
        list->add(ranges[i], row->traits.key);
      }
    }
    if (i == ranges.size()) break;
    // Registered a moment ago, perhaps: the owner's message is on its way.
    if (!synced && peer.sync_table(deadline)) {
      synced = true;
      continue;
    }
    if (auto reason = peer.unusable_reason()) return *reason;
    return Error(Status::kParamInvalid,
                 fmt::format("range {} of {}: remote range {:#x} + {} bytes lies in no single registered region of {}",
                             i, ranges.size(), ranges[i].first, ranges[i].second, peer.engine_id()));
  }
  return std::shared_ptr<const PreparedList>(std::move(list));
}

Result<std::shared_ptr<const PreparedList>> PreparedList::remote(const RemoteRegions& described,
                                                                 std::span<const Address> ranges) {
  ONESIDED_TRY(check_shape(ranges));
  std::map<std::uint64_t, const DescribedItem*> by_address;
  for (const auto& item : described.items()) by_address[item.address] = &item;
  std::shared_ptr<PreparedList> list(new PreparedList(described.engine_id(), described.instance()));
  list->ranges_.reserve(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto& [address, nbytes] = ranges[i];
    const auto after = by_address.upper_bound(address);
    const DescribedItem* item = after == by_address.begin() ? nullptr : std::prev(after)->second;
    if (!item || !range_within(address, nbytes, item->address, item->nbytes))
      return Error(
          Status::kParamInvalid,
          fmt::format("range {} of {}: remote range {:#x} + {} bytes lies in no single range that {} described", i,
                      ranges.size(), address, nbytes, described.engine_id()));
    list->add(ranges[i], item->key);
  }
  return std::shared_ptr<const PreparedList>(std::move(list));
}

Result<void> plan_prepared(Registry& registry, Peer& peer, Op op, const PreparedList& local,
                           const Indices& local_indices, const PreparedList& remote, const Indices& remote_indices,
                           Deadline deadline, std::vector<TransferItem>& items, Plan& plan) {
  plan.clear();
  ONESIDED_TRY_ASSIGN(ours, checked(local_indices, local.size(), "local"));
  ONESIDED_TRY_ASSIGN(theirs, checked(remote_indices, remote.size(), "remote"));
  if (ours.empty() || ours.size() != theirs.size())
    return Error(Status::kParamInvalid, fmt::format("{} local and {} remote indices: expected equally many, at least 1",
                                                    ours.size(), theirs.size()));
  items.clear();
  items.reserve(ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const auto& here = local.ranges()[ours[i]];
    const auto& there = remote.ranges()[theirs[i]];
    if (here.nbytes != there.nbytes) [[unlikely]]
      return Error(Status::kParamInvalid, fmt::format("pair {}: local range {} has {} bytes, remote range {} has {}", i,
                                                      ours[i], here.nbytes, theirs[i], there.nbytes));
    items.push_back({here.address, there.address, here.nbytes});
  }
  if (remote.instance() != peer.instance())
    return Error(Status::kStale, fmt::format("the remote list belongs to an engine that ran at {} before it was "
                                             "restarted; prepare a new list",
                                             peer.engine_id()));
  return Builder(registry, peer, op, local, remote, deadline, plan).build(ours, theirs);
}

}  // namespace onesided
