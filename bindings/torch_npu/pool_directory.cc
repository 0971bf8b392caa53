#include "pool_directory.h"

#include <utility>

namespace onesided::torch_npu {

// Tracks one pool's segments. The pool owns the subscription and outlives all its segments.
class PoolDirectory::Ranges final : public SegmentListener {
 public:
  Ranges(PoolDirectory& directory, const AlignedPoolPtr& pool) : directory_(directory), pool_(pool) {}

  void on_segment_added(const SegmentInfo& segment) override {
    const std::unique_lock lock(directory_.mutex_);
    directory_.ranges_[segment.address] = {segment.address + segment.nbytes, pool_};
  }
  void on_segment_dropped(const SegmentInfo& segment) override {
    const std::unique_lock lock(directory_.mutex_);
    directory_.ranges_.erase(segment.address);
  }

 private:
  PoolDirectory& directory_;
  const std::weak_ptr<AlignedPool> pool_;
};

AlignedPoolPtr PoolDirectory::add(AlignedPoolPtr pool) {
  // Subscribed first: a preallocated segment is reported on subscription, and no other can appear before the pool has
  // an id.
  pool->pool->subscribe(std::make_shared<Ranges>(*this, pool));
  AlignedPoolPtr entered;
  {
    const std::unique_lock lock(mutex_);
    entered = by_id_.try_emplace(pool->id, pool).first->second;
    count_.store(static_cast<int>(by_id_.size()), std::memory_order_relaxed);
  }
  return entered;  // a pool that was added second is destroyed here, without the lock
}

AlignedPoolPtr PoolDirectory::find(PoolId id) {
  if (!any()) return nullptr;
  const std::shared_lock lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

AlignedPoolPtr PoolDirectory::owner_of(const void* address) {
  if (!any()) return nullptr;
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const std::shared_lock lock(mutex_);
  auto after = ranges_.upper_bound(wanted);
  if (after == ranges_.begin()) return nullptr;
  --after;
  if (wanted >= after->second.end) return nullptr;
  return after->second.pool.lock();
}

std::vector<AlignedPoolPtr> PoolDirectory::pools(int device) {
  std::vector<AlignedPoolPtr> all;
  if (!any()) return all;
  const std::shared_lock lock(mutex_);
  for (const auto& [id, pool] : by_id_) {
    if (device < 0 || pool->device_index == device) all.push_back(pool);
  }
  return all;
}

void PoolDirectory::bury_if_dead(const AlignedPoolPtr& pool) {
  if (!pool->retired()) return;
  pool->pool->settle();
  if (!pool->pool->unused()) {
    // No block is in use, but a stream still works on one: no later call would remove the pool.
    if (pool->pool->stats().allocation.current == 0) unburied_ = true;
    return;
  }
  pool->pool->trim();
  const std::unique_lock lock(mutex_);
  // T0: frees the last block | T1: uses the id again (a graph shares the pool), or has chosen the pool and requests its
  // block -> only a pool that is still retired is removed.
  if (!pool->retired()) return;
  if (pool->takers.load() != 0 || pool->pool->stats().segment.current != 0) {
    unburied_ = true;
    return;
  }
  by_id_.erase(pool->id);
  count_.store(static_cast<int>(by_id_.size()), std::memory_order_relaxed);
}

void PoolDirectory::bury_dead() {
  unburied_ = false;  // set again by pools that cannot be removed yet
  for (const AlignedPoolPtr& pool : pools()) bury_if_dead(pool);
}

}  // namespace onesided::torch_npu
