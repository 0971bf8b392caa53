// A pool allocates many aligned tensors from few registered segments. Its parts: a source of raw memory, a map that
// splits it into blocks (block_map.h), freed blocks that wait for streams (pending_frees.h), statistics, history,
// notifications. This file is the contract and the order in which the parts are used.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onesided/base/fork_guard.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/memory/block_map.h"
#include "onesided/memory/history.h"
#include "onesided/memory/pending_frees.h"
#include "onesided/memory/pool_options.h"
#include "onesided/memory/pool_stats.h"
#include "onesided/memory/segment_announcer.h"
#include "onesided/memory/segment_source.h"

namespace onesided {

struct AllocationRequest {
  std::uint64_t nbytes = 0;
  Stream stream;                        // only this stream may reuse the block immediately
  std::shared_ptr<const void> context;  // kept with the block, for snapshots
  bool device_quiet = false;            // events and frees are not allowed now (a graph is being captured)
  bool may_grow = true;                 // false: only from the pool's present segments
};

struct Allocation {
  void* address = nullptr;
  std::uint64_t charged_bytes = 0;
};

struct BlockSnapshot {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t requested_bytes = 0;
  BlockState state = BlockState::kFree;
  std::shared_ptr<const void> context;
};

struct SegmentSnapshot {
  SegmentInfo info;
  std::vector<BlockSnapshot> blocks;  // in order; they cover the segment
  std::shared_ptr<const void> context;
};

// A pool of aligned blocks on one device. Internally synchronized; any thread may free. `device` and the objects that
// the source needs must outlive it. All blocks should be freed before it is destroyed; memory of the others is leaked,
// not unmapped. In a forked child it allocates nothing (CLOSED) and frees nothing, because its pages and free blocks
// are shared with the parent.
class Pool {
 public:
  // Frees memory that other pools cache on the device (about `wanted` bytes); returns whether it freed anything. Called
  // without a lock when the device has no memory left.
  using ReclaimElsewhere = std::function<bool(std::uint64_t wanted)>;

  // PARAM_INVALID: an option violates its rule. RESOURCE_EXHAUSTED: the preallocation does not fit, also after
  // `reclaim_elsewhere`.
  static Result<std::unique_ptr<Pool>> create(Device& device, std::unique_ptr<SegmentSource> source,
                                              PoolOptions options, ReclaimElsewhere reclaim_elsewhere = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Allocates a block: address % alignment == 0, charged ceil(nbytes / alignment) * alignment. 0 bytes give a null
  // address; freeing it has no effect. If memory is exhausted, the pool first uses its own freed blocks (waiting for
  // their streams), then frees its idle segments, then calls `reclaim_elsewhere` (except if the pool's own limit
  // refuses, or the request exceeds the device). After that: RESOURCE_EXHAUSTED with the pool's numbers, and no state
  // has changed.
  Result<Allocation> allocate(const AllocationRequest& request);
  Result<Allocation> allocate(std::uint64_t nbytes, Stream stream = {}) {
    return allocate({.nbytes = nbytes, .stream = stream});
  }
  // NOT_FOUND: not the start of an allocated block (freed twice, foreign, or an inner pointer); no state has changed.
  Result<void> free(void* address, bool device_quiet = false);

  // Records that work on `stream` uses the block: after free() the block is not reused before that work is done.
  // NOT_FOUND as for free().
  Result<void> record_stream(void* address, Stream stream);
  Result<void> erase_stream(void* address, Stream stream);
  // The stream for which the block was allocated.
  Result<Stream> stream_of(const void* address);

  // To be called after a reset of the device: recorded events never complete, so the blocks that wait for them become
  // free.
  void forget_events() { take_back(pending_.abandon()); }

  // Charged length of the block that starts at the address; NOT_FOUND as for free().
  Result<std::uint64_t> charged_bytes(const void* address);
  // The segment that contains the address, or std::nullopt.
  std::optional<SegmentInfo> segment_of(const void* address);
  std::vector<std::uint64_t> live_addresses();
  bool unused();  // no block is allocated or pending
  // Makes pending blocks free whose streams are done with them; never blocks.
  void settle() {
    if (pending_.any()) take_back(pending_.take_finished());
  }

  enum class Patience { kTakeWhatIsDone, kWaitForStreams };
  // Frees idle segments, least recently used first, until at least `wanted` bytes are freed or none is left. Waits for
  // the device if there is an idle segment; with kWaitForStreams it first waits for the streams of pending blocks. A
  // segment that a listener still uses remains. Returns the number of bytes freed.
  std::uint64_t trim(std::uint64_t wanted = UINT64_MAX, Patience patience = Patience::kTakeWhatIsDone);
  // Bytes that trim() could free now without waiting for streams.
  std::uint64_t idle_bytes();
  // The largest free block and the sum of all free bytes of the pool.
  std::pair<std::uint64_t, std::uint64_t> free_bytes();

  // Replays all segments to the listener before it returns. See SegmentListener.
  SubscriptionId subscribe(std::shared_ptr<SegmentListener> listener);
  void unsubscribe(SubscriptionId id) { announcer_.unsubscribe(id); }

  PoolStats stats();
  void reset_peak_stats();
  void reset_accumulated_stats();
  std::vector<SegmentSnapshot> snapshot();
  void keep_history(std::size_t max_entries);  // 0: off
  std::vector<PoolEvent> history();

  const PoolOptions& options() const { return options_; }
  Device& device() const { return device_; }

 private:
  Pool(Device& device, std::unique_ptr<SegmentSource> source, PoolOptions options, ReclaimElsewhere reclaim_elsewhere);

  // pool.cc
  Allocation hand_out(Block* block, const AllocationRequest& request) ONESIDED_REQUIRES(mutex_);
  void take_back(const std::vector<Block*>& blocks);
  void complete_free(Block* block) ONESIDED_REQUIRES(mutex_);
  void count_split(const Segment& segment, std::uint64_t blocks_before, std::uint64_t bytes_before)
      ONESIDED_REQUIRES(mutex_);
  SegmentInfo describe(const Segment& segment) const;

  // pool_growth.cc: used if no free block fits
  Result<Allocation> allocate_by_growing(const AllocationRequest& request, std::uint64_t charged);
  std::optional<Allocation> take_free(const AllocationRequest& request, std::uint64_t charged);
  Result<Allocation> grow(const AllocationRequest& request, std::uint64_t charged, std::uint64_t usable);
  Result<Allocation> grow_by_steps(const AllocationRequest& request, std::uint64_t charged);
  Result<void*> raw_memory(std::uint64_t usable, Stream stream, std::uint64_t& raw_bytes);
  Result<void*> raw_memory_of(std::uint64_t raw_bytes, Stream stream);
  Segment* enter(void* base, std::uint64_t raw_bytes, Stream stream, SegmentAnnouncer::Listeners& listeners);
  void collect_garbage(std::uint64_t next_bytes);
  // True while this thread notifies listeners of a new segment of this pool.
  bool announces() const;
  bool others_may_help(std::uint64_t charged);
  Result<void> preallocate(std::uint64_t nbytes);
  std::vector<Segment*> withdraw_idle(std::uint64_t wanted) ONESIDED_REQUIRES(mutex_);
  std::uint64_t drop(Segment* segment, const SegmentAnnouncer::Listeners& listeners);
  Error exhausted(std::uint64_t charged, const Error& cause);
  std::uint64_t reserved_bytes();

  const ForkGuard process_;
  Device& device_;
  const std::unique_ptr<SegmentSource> source_;
  const PoolOptions options_;
  const ReclaimElsewhere reclaim_elsewhere_;
  const std::uint64_t guard_bytes_;

  SegmentAnnouncer announcer_;
  PendingFrees pending_;

  Mutex mutex_;
  BlockMap blocks_ ONESIDED_GUARDED_BY(mutex_);
  PoolStats stats_ ONESIDED_GUARDED_BY(mutex_);
  History history_ ONESIDED_GUARDED_BY(mutex_);
  std::uint64_t growing_bytes_ ONESIDED_GUARDED_BY(mutex_) = 0;  // requested from the source, not added yet
  std::uint64_t extra_bytes_ ONESIDED_GUARDED_BY(mutex_) = 0;    // requested in addition, because bases were misaligned
};

}  // namespace onesided
