// Reports of the device's memory for torch_npu's users: statistics of the native allocator and of aligned pools added
// up, segments of both in one snapshot, observers and trackers called for both.
#include <fmt/format.h>

#include <algorithm>

#include "aligned_allocator.h"
#include "next_pool.h"

namespace onesided::torch_npu {
namespace {

using npu_alloc::Stat;
using npu_alloc::StatArray;
using npu_alloc::StatType;

// All memory of an aligned pool counts as "large": blocks are at least a page and segments are not of the 2 MiB kind.
void add(StatArray& to, const Counter& from) {
  for (const StatType type : {StatType::AGGREGATE, StatType::LARGE_POOL}) {
    Stat& stat = to[static_cast<std::size_t>(type)];
    stat.current += from.current;
    stat.peak += from.peak;
    stat.allocated += from.allocated;
    stat.freed += from.freed;
  }
}

npu_alloc::TraceEntry::Action action_of(PoolAction action) {
  using Entry = npu_alloc::TraceEntry;
  switch (action) {
    case PoolAction::kAlloc: return Entry::ALLOC;
    case PoolAction::kFreeRequested: return Entry::FREE_REQUESTED;
    case PoolAction::kFreeCompleted: return Entry::FREE_COMPLETED;
    case PoolAction::kSegmentAlloc: return Entry::SEGMENT_ALLOC;
    case PoolAction::kSegmentFree: return Entry::SEGMENT_FREE;
    case PoolAction::kOutOfMemory: return Entry::OOM;
  }
  return Entry::SNAPSHOT;
}

std::shared_ptr<c10::GatheredContext> context_of(const std::shared_ptr<const void>& kept) {
  return std::static_pointer_cast<c10::GatheredContext>(std::const_pointer_cast<void>(kept));
}

npu_alloc::TraceEntry entry_of(const AlignedPool& pool, const PoolEvent& event) {
  return trace_entry(action_of(event.action), pool.device_index, event.address, event.nbytes, event.stream.handle,
                     pool.id, context_of(event.context));
}

// Counters that older versions do not have.
template <typename Stats>
void add_newer(Stats& all, const AlignedPool& pool, const PoolStats& one) {
  if constexpr (requires { all.reserved_bytes_by_private_pools; }) {
    add(all.reserved_bytes_by_private_pools[pool.id], one.reserved_bytes);
  }
  if constexpr (requires { all.num_device_alloc; }) {
    all.num_device_alloc += one.num_device_alloc;
    all.num_device_free += one.num_device_free;
  }
}

npu_alloc::SegmentInfo segment_of(const AlignedPool& pool, const SegmentSnapshot& segment) {
  npu_alloc::SegmentInfo info;
  info.device = pool.device_index;
  info.address = static_cast<int64_t>(segment.info.address);
  info.stream = segment.info.stream.handle;
  info.total_size = static_cast<int64_t>(segment.info.nbytes);
  info.is_large = true;
  info.owner_private_pool_id = pool.id;
  info.context_when_allocated = context_of(segment.context);
  for (const BlockSnapshot& block : segment.blocks) {
    npu_alloc::BlockInfo& one = info.blocks.emplace_back();
    one.size = static_cast<int64_t>(block.nbytes);
    one.requested_size = static_cast<int64_t>(block.requested_bytes);
    one.allocated = block.state == BlockState::kAllocated;
    one.active = block.state != BlockState::kFree;
    one.context_when_allocated = context_of(block.context);
    if (one.allocated) info.allocated_size += one.size;
    if (one.active) {
      info.active_size += one.size;
      info.requested_size += one.requested_size;
    }
  }
  return info;
}

}  // namespace

// Reports a pool's segments to torch_npu's trackers (HCCL's registration hook, profilers).
class AlignedAllocator::SegmentTracer final : public SegmentListener {
 public:
  SegmentTracer(AlignedAllocator& allocator, AlignedPool* pool) : allocator_(allocator), pool_(pool) {}

  void on_segment_added(const SegmentInfo& segment) override { tell(PoolAction::kSegmentAlloc, segment); }
  void on_segment_dropped(const SegmentInfo& segment) override {
    pool_->forget_export_key(segment.address);
    tell(PoolAction::kSegmentFree, segment);
  }

 private:
  void tell(PoolAction action, const SegmentInfo& segment) {
    std::vector<TraceTracker> trackers;
    {
      const std::lock_guard lock(allocator_.mutex_);
      trackers = allocator_.trackers_;
    }
    for (const auto& tracker : trackers) {
      tracker(entry_of(*pool_, {action, segment.address, segment.nbytes, segment.stream, nullptr}));
    }
  }

  AlignedAllocator& allocator_;
  AlignedPool* const pool_;
};

void AlignedAllocator::follow(const AlignedPoolPtr& pool) {
  std::size_t entries = 0;
  {
    const std::lock_guard lock(mutex_);
    entries = history_entries_;
  }
  pool->pool->keep_history(entries);
  pool->pool->subscribe(std::make_shared<SegmentTracer>(*this, pool.get()));
}

DeviceStats AlignedAllocator::native_stats(c10::DeviceIndex device) {
  DeviceStats stats = native()->getDeviceStats(device);
  const std::int64_t cured = cured_ooms_[static_cast<std::size_t>(device)].load();
  stats.num_ooms -= cured;
  stats.num_alloc_retries += cured;
  return stats;
}

DeviceStats AlignedAllocator::getDeviceStats(c10::DeviceIndex device) {
  DeviceStats all = native_stats(device);
  for (const AlignedPoolPtr& pool : directory_.pools(device)) {
    const PoolStats one = pool->pool->stats();
    add(all.allocation, one.allocation);
    add(all.segment, one.segment);
    add(all.active, one.active);
    add(all.inactive_split, one.inactive_split);
    add(all.allocated_bytes, one.allocated_bytes);
    add(all.reserved_bytes, one.reserved_bytes);
    add(all.active_bytes, one.active_bytes);
    add(all.inactive_split_bytes, one.inactive_split_bytes);
    add(all.requested_bytes, one.requested_bytes);
    all.num_alloc_retries += one.num_alloc_retries;
    all.num_ooms += one.num_ooms;
    add_newer(all, *pool, one);
  }
  return all;
}

void AlignedAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  native()->resetAccumulatedStats(device);
  cured_ooms_[static_cast<std::size_t>(device)] = 0;
  for (const AlignedPoolPtr& pool : directory_.pools(device)) pool->pool->reset_accumulated_stats();
}

void AlignedAllocator::resetPeakStats(c10::DeviceIndex device) {
  native()->resetPeakStats(device);
  for (const AlignedPoolPtr& pool : directory_.pools(device)) pool->pool->reset_peak_stats();
}

void AlignedAllocator::cacheInfo(int device, size_t* cached_and_free, size_t* largest_block) {
  native()->cacheInfo(device, cached_and_free, largest_block);
  for (const AlignedPoolPtr& pool : directory_.pools(device)) {
    const auto [largest, total] = pool->pool->free_bytes();
    *cached_and_free += total;
    *largest_block = std::max(*largest_block, static_cast<size_t>(largest));
  }
}

npu_alloc::SnapshotInfo AlignedAllocator::snapshot(PoolId id) {
  npu_alloc::SnapshotInfo all = device_allocator(native()).snapshot(id);
  for (const AlignedPoolPtr& pool : directory_.pools()) {
    if (id != PoolId{0, 0} && id != pool->id) continue;
    for (const SegmentSnapshot& segment : pool->pool->snapshot()) all.segments.push_back(segment_of(*pool, segment));
    const auto device = static_cast<std::size_t>(pool->device_index);
    if (device >= all.device_traces.size()) continue;
    for (const PoolEvent& event : pool->pool->history()) all.device_traces[device].push_back(entry_of(*pool, event));
  }
  return all;
}

void AlignedAllocator::recordHistory(bool enabled, npu_alloc::CreateContextFn recorder, size_t max_entries,
                                     npu_alloc::RecordContext when) {
  native()->recordHistory(enabled, recorder, max_entries, when);
  context_recorder_ = recorder;
  context_level_ = enabled ? when : npu_alloc::RecordContext::NEVER;
  {
    const std::lock_guard lock(mutex_);
    history_entries_ = enabled ? max_entries : 0;
  }
  for (const AlignedPoolPtr& pool : directory_.pools()) pool->pool->keep_history(enabled ? max_entries : 0);
}

void AlignedAllocator::attachOutOfMemoryObserver(npu_alloc::OutOfMemoryObserver observer) {
  native()->attachOutOfMemoryObserver([observer](int64_t device, int64_t asked, int64_t total, int64_t free) {
    if (!native_oom_may_be_cured()) observer(device, asked, total, free);
  });
  const std::lock_guard lock(mutex_);
  oom_observers_.push_back(std::move(observer));
}

void AlignedAllocator::attachAllocatorTraceTracker(TraceTracker tracker) {
  {
    const std::lock_guard lock(mutex_);
    trackers_.push_back(tracker);
  }
  counted_pools(native()).attachAllocatorTraceTracker(std::move(tracker));
}

std::string AlignedAllocator::describe_pools(int device) {
  std::string text = "Aligned pools:";
  for (const AlignedPoolPtr& pool : directory_.pools(device)) {
    const PoolStats stats = pool->pool->stats();
    text += fmt::format(" ({}, {}): {} reserved, {} allocated, {} overhead;", pool->id.first, pool->id.second,
                        stats.reserved_bytes.current, stats.allocated_bytes.current, stats.overhead_bytes.current);
  }
  return text;
}

}  // namespace onesided::torch_npu
