// Lists of ranges that are checked and bound once, so that transfers afterwards name indices only: a KV cache moves the
// same blocks thousands of times.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "onesided/engine/plan.h"
#include "onesided/engine/remote_regions.h"

namespace onesided {

// Indices into a list, as the caller has them. A view.
using Indices = std::variant<std::span<const std::uint64_t>, std::span<const std::int64_t>,
                             std::span<const std::uint32_t>, std::span<const std::int32_t>>;

// Ranges of one side, each with the registration that it belonged to when the list was made. Immutable, so any thread
// may use it. It keeps nothing registered: transfers of a list whose region was deregistered are STALE.
class PreparedList {
 public:
  struct Range {
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
    std::uint32_t region = 0;  // index in regions()
  };
  using Address = std::pair<std::uint64_t, std::uint64_t>;  // address, bytes

  // PARAM_INVALID: an empty list; a range that is empty or lies in no single registered region.
  static Result<std::shared_ptr<const PreparedList>> local(Registry& registry, InstanceId instance,
                                                           std::span<const Address> ranges);
  // The same of what the peer has registered now; asks it once until the deadline.
  static Result<std::shared_ptr<const PreparedList>> remote(Peer& peer, std::span<const Address> ranges,
                                                            Deadline deadline);
  // The same of what the peer has described: bound to those registrations, not to what takes their place.
  static Result<std::shared_ptr<const PreparedList>> remote(const RemoteRegions& described,
                                                            std::span<const Address> ranges);

  bool is_local() const { return peer_id_.empty(); }
  const std::string& peer_id() const { return peer_id_; }   // of a remote list: what connect() takes
  const InstanceId& instance() const { return instance_; }  // the engine whose memory it names
  std::size_t size() const { return ranges_.size(); }
  std::span<const Range> ranges() const { return ranges_; }
  std::span<const RegionKey> regions() const { return regions_; }

 private:
  PreparedList(std::string peer_id, InstanceId instance) : peer_id_(std::move(peer_id)), instance_(instance) {}
  void add(const Address& range, RegionKey region);

  const std::string peer_id_;
  const InstanceId instance_;
  std::vector<Range> ranges_;
  std::vector<RegionKey> regions_;  // each once
};

// Checked indices as items and moves: `items` are the caller's, one for each pair of indices; neighbours in `plan` are
// one move. PARAM_INVALID: names the index that is out of range, or the pair whose lengths differ. STALE: a region of
// either list was deregistered, or the peer is not the engine that the list names.
Result<void> plan_prepared(Registry& registry, Peer& peer, Op op, const PreparedList& local,
                           const Indices& local_indices, const PreparedList& remote, const Indices& remote_indices,
                           Deadline deadline, std::vector<TransferItem>& items, Plan& plan);

}  // namespace onesided
