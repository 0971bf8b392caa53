#include "onesided/memory/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "onesided/base/log.h"

namespace onesided {
namespace {

Error not_held(const void* address) {
  return {Status::kNotFound, fmt::format("{} is not the start of an allocated block of this pool: freed already, "
                                         "foreign, or an address inside a block",
                                         address)};
}

}  // namespace

Pool::Pool(Device& device, std::unique_ptr<SegmentSource> source, PoolOptions options,
           ReclaimElsewhere reclaim_elsewhere)
    : device_(device),
      source_(std::move(source)),
      options_(options),
      reclaim_elsewhere_(std::move(reclaim_elsewhere)),
      guard_bytes_(options.guard_bytes.value_or(source_->guard_bytes())),
      pending_(device),
      blocks_(options.alignment, options.no_split) {}

Result<std::unique_ptr<Pool>> Pool::create(Device& device, std::unique_ptr<SegmentSource> source, PoolOptions options,
                                           ReclaimElsewhere reclaim_elsewhere) {
  ONESIDED_TRY(check_options(options, device.page_bytes()));
  std::unique_ptr<Pool> pool(new Pool(device, std::move(source), options, std::move(reclaim_elsewhere)));
  if (options.preallocate_bytes != 0) ONESIDED_TRY(pool->preallocate(options.preallocate_bytes));
  return pool;
}

Pool::~Pool() {
  if (!process_.same_process()) return;
  take_back(pending_.wait_all());
  trim();
  MutexLock lock(mutex_);
  if (stats_.allocation.current != 0) {
    log_line(LogLevel::kWarn,
             fmt::format(
                 "a pool on {} was destroyed before {} of its blocks ({} bytes) were freed; their memory stays mapped",
                 device_.name(), stats_.allocation.current, stats_.allocated_bytes.current));
  }
}

Result<Allocation> Pool::allocate(const AllocationRequest& request) {
  if (request.nbytes == 0) return Allocation{};
  if (!process_.same_process()) {
    return Error{Status::kClosed,
                 fmt::format("this pool on {} belongs to the process that was forked, which shares its "
                             "memory; make a pool in this process",
                             device_.name())};
  }
  const auto charged = align_up(request.nbytes, options_.alignment);
  if (!charged) {
    return Error{Status::kResourceExhausted, fmt::format("{} bytes do not fit an address space", request.nbytes)};
  }
  if (pending_.any() && !request.device_quiet) take_back(pending_.take_finished());
  if (auto allocation = take_free(request, *charged)) return *allocation;
  if (!request.may_grow)
    return Error{Status::kResourceExhausted, "no free block fits, and the request does not allow the pool to grow"};
  return allocate_by_growing(request, *charged);
}

std::optional<Allocation> Pool::take_free(const AllocationRequest& request, std::uint64_t charged) {
  MutexLock lock(mutex_);
  Block* block = blocks_.take(charged, request.stream);
  if (!block) return std::nullopt;
  return hand_out(block, request);
}

Allocation Pool::hand_out(Block* block, const AllocationRequest& request) {
  block->requested_bytes = request.nbytes;
  block->context = request.context;
  const Segment& segment = *block->segment;
  // Before take() the free bytes included this block; the difference tells whether it was a whole block or a part of
  // one.
  const bool was_idle = segment.blocks_in_use == 1;
  const std::uint64_t bytes_before = was_idle ? 0 : segment.free_bytes + block->nbytes;
  const bool cut = block->right && block->right->state == BlockState::kFree;
  const std::uint64_t blocks_before = was_idle ? 0 : segment.free_blocks + (cut ? 0 : 1);
  count_split(segment, blocks_before, bytes_before);
  stats_.allocation.increase(1);
  stats_.active.increase(1);
  stats_.allocated_bytes.increase(block->nbytes);
  stats_.active_bytes.increase(block->nbytes);
  stats_.requested_bytes.increase(request.nbytes);
  history_.add({PoolAction::kAlloc, block->address, block->nbytes, segment.stream, request.context});
  return {reinterpret_cast<void*>(block->address), block->nbytes};
}

void Pool::count_split(const Segment& segment, std::uint64_t blocks_before, std::uint64_t bytes_before) {
  const bool in_use = segment.blocks_in_use != 0;
  const std::uint64_t blocks_now = in_use ? segment.free_blocks : 0;
  const std::uint64_t bytes_now = in_use ? segment.free_bytes : 0;
  if (blocks_now > blocks_before) stats_.inactive_split.increase(blocks_now - blocks_before);
  if (blocks_now < blocks_before) stats_.inactive_split.decrease(blocks_before - blocks_now);
  if (bytes_now > bytes_before) stats_.inactive_split_bytes.increase(bytes_now - bytes_before);
  if (bytes_now < bytes_before) stats_.inactive_split_bytes.decrease(bytes_before - bytes_now);
}

Result<void> Pool::free(void* address, bool device_quiet) {
  if (!address || !process_.same_process()) return {};
  Block* block = nullptr;
  std::vector<Stream> streams;
  {
    MutexLock lock(mutex_);
    block = blocks_.find_allocated(address);
    if (!block) return not_held(address);
    stats_.allocation.decrease(1);
    stats_.allocated_bytes.decrease(block->nbytes);
    stats_.requested_bytes.decrease(block->requested_bytes);
    history_.add({PoolAction::kFreeRequested, block->address, block->nbytes, block->segment->stream, block->context});
    if (block->used_on.empty()) {
      complete_free(block);
      return {};
    }
    streams.swap(block->used_on);
    block->state = BlockState::kPending;
  }
  pending_.add(block, std::move(streams), device_quiet);
  return {};
}

void Pool::complete_free(Block* block) {
  const Segment& segment = *block->segment;
  const std::uint64_t blocks_before = segment.free_blocks;
  const std::uint64_t bytes_before = segment.free_bytes;
  stats_.active.decrease(1);
  stats_.active_bytes.decrease(block->nbytes);
  history_.add({PoolAction::kFreeCompleted, block->address, block->nbytes, segment.stream, block->context});
  blocks_.give_back(block);
  count_split(segment, blocks_before, bytes_before);
}

void Pool::take_back(const std::vector<Block*>& blocks) {
  if (blocks.empty()) return;
  MutexLock lock(mutex_);
  for (Block* block : blocks) complete_free(block);
}

Result<void> Pool::record_stream(void* address, Stream stream) {
  MutexLock lock(mutex_);
  Block* block = blocks_.find_allocated(address);
  if (!block) return not_held(address);
  // Work on the block's own stream is ordered already.
  if (stream == block->segment->stream) return {};
  if (std::find(block->used_on.begin(), block->used_on.end(), stream) == block->used_on.end()) {
    block->used_on.push_back(stream);
  }
  return {};
}

Result<void> Pool::erase_stream(void* address, Stream stream) {
  MutexLock lock(mutex_);
  Block* block = blocks_.find_allocated(address);
  if (!block) return not_held(address);
  std::erase(block->used_on, stream);
  return {};
}

Result<Stream> Pool::stream_of(const void* address) {
  MutexLock lock(mutex_);
  const Block* block = blocks_.find_allocated(address);
  if (!block) return not_held(address);
  return block->segment->stream;
}

Result<std::uint64_t> Pool::charged_bytes(const void* address) {
  MutexLock lock(mutex_);
  const Block* block = blocks_.find_allocated(address);
  if (!block) return not_held(address);
  return block->nbytes;
}

std::optional<SegmentInfo> Pool::segment_of(const void* address) {
  MutexLock lock(mutex_);
  const Segment* segment = blocks_.find_segment(address);
  if (!segment || segment->state != SegmentState::kLive) return std::nullopt;
  return describe(*segment);
}

SegmentInfo Pool::describe(const Segment& segment) const {
  return {segment.begin,     segment.usable_bytes(), reinterpret_cast<std::uintptr_t>(segment.raw_base),
          segment.raw_bytes, segment.stream,         &device_};
}

SubscriptionId Pool::subscribe(std::shared_ptr<SegmentListener> listener) {
  // T0: subscribe | T1: grow, trim -> T0 replays a segment that T1 added before, T1 announces a later one, and none is
  // dropped while T0 notifies (pins).
  std::vector<Segment*> pinned;
  std::vector<SegmentInfo> known;
  SubscriptionId id = 0;
  {
    MutexLock lock(mutex_);
    id = announcer_.subscribe(std::move(listener));
    for (Segment* segment : blocks_.segments()) {
      if (segment->state == SegmentState::kDropping) continue;
      ++segment->pins;
      pinned.push_back(segment);
      known.push_back(describe(*segment));
    }
  }
  const auto only_it = announcer_.listener(id);
  for (const SegmentInfo& info : known) SegmentAnnouncer::added(only_it, info);
  MutexLock lock(mutex_);
  for (Segment* segment : pinned) --segment->pins;
  return id;
}

PoolStats Pool::stats() {
  MutexLock lock(mutex_);
  return stats_;
}

void Pool::reset_peak_stats() {
  MutexLock lock(mutex_);
  stats_.reset_peak();
}

void Pool::reset_accumulated_stats() {
  MutexLock lock(mutex_);
  stats_.reset_accumulated();
}

std::vector<SegmentSnapshot> Pool::snapshot() {
  MutexLock lock(mutex_);
  std::vector<SegmentSnapshot> all;
  for (const Segment* segment : blocks_.segments()) {
    const bool stuck = segment->state == SegmentState::kStuck;
    if (segment->state != SegmentState::kLive && !stuck) continue;
    SegmentSnapshot& one = all.emplace_back(SegmentSnapshot{describe(*segment), {}, segment->context});
    for (const Block* block = segment->first; block; block = block->right) {
      one.blocks.push_back({block->address, block->nbytes, block->requested_bytes, block->state, block->context});
    }
    // It has no blocks any more, but still uses device memory.
    if (stuck) one.blocks.push_back({segment->begin, segment->usable_bytes(), 0, BlockState::kFree, nullptr});
  }
  return all;
}

void Pool::keep_history(std::size_t max_entries) {
  MutexLock lock(mutex_);
  history_.keep(max_entries);
}

std::vector<PoolEvent> Pool::history() {
  MutexLock lock(mutex_);
  return history_.events();
}

std::vector<std::uint64_t> Pool::live_addresses() {
  MutexLock lock(mutex_);
  std::vector<std::uint64_t> all;
  for (const Segment* segment : blocks_.segments()) {
    for (const Block* block = segment->first; block; block = block->right) {
      if (block->state == BlockState::kAllocated) all.push_back(block->address);
    }
  }
  return all;
}

bool Pool::unused() {
  MutexLock lock(mutex_);
  return stats_.active.current == 0;
}

std::uint64_t Pool::idle_bytes() {
  MutexLock lock(mutex_);
  std::uint64_t total = 0;
  for (const Segment* segment : blocks_.segments()) total += BlockMap::idle(*segment) ? segment->raw_bytes : 0;
  return total;
}

std::pair<std::uint64_t, std::uint64_t> Pool::free_bytes() {
  MutexLock lock(mutex_);
  std::uint64_t largest = 0;
  std::uint64_t total = 0;
  for (const Segment* segment : blocks_.segments()) {
    for (const Block* block = segment->first; block; block = block->right) {
      if (block->state != BlockState::kFree) continue;
      largest = std::max(largest, block->nbytes);
      total += block->nbytes;
    }
  }
  return {largest, total};
}

}  // namespace onesided
