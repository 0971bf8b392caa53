// Many tensors out of few registered segments, every one of them aligned. A pool is a pipe of small parts: a
// source of raw memory, a map that cuts it (block_map.h), blocks that wait for streams (pending_frees.h), statistics,
// history, announcements. This file is the contract and the order in which the parts are asked.
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
  Stream stream;                        // the block is reused at once on this stream only
  std::shared_ptr<const void> context;  // kept with the block, for snapshots
  bool device_quiet = false;            // events and frees are forbidden now (a graph is being captured)
  bool may_grow = true;                 // false: only from what the pool holds already
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
  std::vector<BlockSnapshot> blocks;  // in order, covering the segment
  std::shared_ptr<const void> context;
};

// A pool of aligned blocks on one device. Internally synchronized; any thread may free. `device` and what the source
// needs must outlive it. Blocks must have been freed before it dies; what is not is leaked, never pulled away.
// In a forked child it hands nothing out (CLOSED) and takes nothing back: pages and free blocks are the parent's too.
class Pool {
 public:
  // Frees what others cache on the device (about `wanted` bytes) and says whether it freed anything. Called with no
  // lock held when the device has no memory left.
  using ReclaimElsewhere = std::function<bool(std::uint64_t wanted)>;

  // PARAM_INVALID: an option breaks its rule. RESOURCE_EXHAUSTED: the preallocation did not fit, also after others were
  // asked.
  static Result<std::unique_ptr<Pool>> create(Device& device, std::unique_ptr<SegmentSource> source,
                                              PoolOptions options, ReclaimElsewhere reclaim_elsewhere = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // address % alignment == 0, charged ceil(nbytes / alignment) * alignment. 0 bytes: a null address, freed with no
  // effect. Exhausted: first the pool's own free blocks (waiting for their streams), then its idle segments go back,
  // then `reclaim_elsewhere` is asked (unless it is the pool's own cap that refuses, or more is asked than the device
  // has); then RESOURCE_EXHAUSTED with the pool's numbers, and no state changed.
  Result<Allocation> allocate(const AllocationRequest& request);
  Result<Allocation> allocate(std::uint64_t nbytes, Stream stream = {}) {
    return allocate({.nbytes = nbytes, .stream = stream});
  }
  // NOT_FOUND: not the start of a block that is held (freed twice, foreign, or an inner pointer); nothing changes.
  Result<void> free(void* address, bool device_quiet = false);

  // Work on `stream` uses the block beside its own stream: after free() it is not reused before that work is done.
  // NOT_FOUND as for free().
  Result<void> record_stream(void* address, Stream stream);
  Result<void> erase_stream(void* address, Stream stream);
  // The stream the block was allocated for.
  Result<Stream> stream_of(const void* address);

  // The device was reset: no recorded event will ever be done; what waited for one is free.
  void forget_events() { take_back(pending_.abandon()); }

  // Charged length of the block that starts at the address; NOT_FOUND as for free().
  Result<std::uint64_t> charged_bytes(const void* address);
  // The segment that contains the address, or nothing.
  std::optional<SegmentInfo> segment_of(const void* address);
  std::vector<std::uint64_t> live_addresses();
  bool unused();  // no block is held or pending
  // Takes blocks back whose streams are done with them; never waits.
  void settle() {
    if (pending_.any()) take_back(pending_.take_finished());
  }

  enum class Patience { kTakeWhatIsDone, kWaitForStreams };
  // Gives idle segments back to their source, least recently used first, until at least `wanted` bytes went or none is
  // left. Waits for the device when there is one, before that with kWaitForStreams for the streams that blocks wait
  // for. A segment that a listener does not let go stays. Returns bytes given back.
  std::uint64_t trim(std::uint64_t wanted = UINT64_MAX, Patience patience = Patience::kTakeWhatIsDone);
  // Bytes that trim() could give back right now without waiting for streams.
  std::uint64_t idle_bytes();
  // Largest free block and all free bytes of the pool.
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

  // pool_growth.cc: what happens when no free block fits
  Result<Allocation> allocate_by_growing(const AllocationRequest& request, std::uint64_t charged);
  std::optional<Allocation> take_free(const AllocationRequest& request, std::uint64_t charged);
  Result<Allocation> grow(const AllocationRequest& request, std::uint64_t charged, std::uint64_t usable);
  Result<Allocation> grow_by_steps(const AllocationRequest& request, std::uint64_t charged);
  Result<void*> raw_memory(std::uint64_t usable, Stream stream, std::uint64_t& raw_bytes);
  Result<void*> raw_memory_of(std::uint64_t raw_bytes, Stream stream);
  Segment* enter(void* base, std::uint64_t raw_bytes, Stream stream, SegmentAnnouncer::Listeners& listeners);
  void collect_garbage(std::uint64_t next_bytes);
  // This thread is telling listeners of a new segment of this pool.
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
  std::uint64_t growing_bytes_ ONESIDED_GUARDED_BY(mutex_) = 0;  // asked of the source, not entered yet
  std::uint64_t extra_bytes_ ONESIDED_GUARDED_BY(mutex_) =
      0;  // asked beyond the usable length, since bases were misaligned
};

}  // namespace onesided
