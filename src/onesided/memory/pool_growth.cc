// The slow path of a pool, in the order that users may rely on: more raw memory, the pool's own pending blocks, its
// idle segments, memory that other pools cache, then an error.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "onesided/base/log.h"
#include "onesided/memory/pool.h"

namespace onesided {
namespace {

// Pools whose new segment this thread is announcing, innermost last.
thread_local std::vector<const Pool*> announced_here;

class Announcing {
 public:
  explicit Announcing(const Pool* pool) { announced_here.push_back(pool); }
  ~Announcing() { announced_here.pop_back(); }
  Announcing(const Announcing&) = delete;
  Announcing& operator=(const Announcing&) = delete;
};

}  // namespace

bool Pool::announces() const {
  return std::find(announced_here.begin(), announced_here.end(), this) != announced_here.end();
}

Result<Allocation> Pool::allocate_by_growing(const AllocationRequest& request, std::uint64_t charged) {
  if (!request.device_quiet) {
    collect_garbage(charged);
    if (auto allocation = take_free(request, charged)) return *allocation;
  }
  if (announces()) {
    return Error{Status::kResourceExhausted,
                 fmt::format("{} bytes requested from a pool by a callback about its own new segment: the pool does "
                             "not grow for this request, because that would call the callback again",
                             charged)};
  }
  auto grown = grow_by_steps(request, charged);
  if (grown.ok() || grown.status() != Status::kResourceExhausted) return grown;
  {
    MutexLock lock(mutex_);
    ++stats_.num_alloc_retries;
  }
  if (!request.device_quiet) {
    take_back(pending_.wait_all());
    if (auto allocation = take_free(request, charged)) return *allocation;
    if (trim() != 0) grown = grow(request, charged, charged);
    if (!grown.ok() && grown.status() == Status::kResourceExhausted && others_may_help(charged) &&
        reclaim_elsewhere_(charged)) {
      grown = grow(request, charged, charged);
    }
  }
  if (grown.ok() || grown.status() != Status::kResourceExhausted) return grown;
  // Another thread may have freed a block meanwhile.
  if (auto allocation = take_free(request, charged)) return *allocation;
  return exhausted(charged, grown.error());
}

bool Pool::others_may_help(std::uint64_t charged) {
  if (!reclaim_elsewhere_) return false;
  {
    // At its own limit a pool must not empty the caches of other pools at each refusal.
    MutexLock lock(mutex_);
    const auto held = static_cast<std::uint64_t>(stats_.reserved_bytes.current) + growing_bytes_;
    if (options_.max_bytes != 0 && (charged > options_.max_bytes || held > options_.max_bytes - charged)) return false;
  }
  const auto device = device_.memory_info();
  return !device.ok() || charged <= device->total_bytes;
}

Result<void> Pool::preallocate(std::uint64_t nbytes) {
  const auto wanted = align_up(nbytes, options_.alignment);
  if (!wanted) return Error{Status::kParamInvalid, "preallocate_bytes does not fit 64 bits"};
  std::uint64_t raw_bytes = 0;
  auto base = raw_memory(*wanted, Stream{}, raw_bytes);
  if (!base.ok() && base.status() == Status::kResourceExhausted && others_may_help(*wanted) &&
      reclaim_elsewhere_(*wanted)) {
    base = raw_memory(*wanted, Stream{}, raw_bytes);
  }
  if (!base.ok()) return base.status() == Status::kResourceExhausted ? exhausted(*wanted, base.error()) : base.error();
  SegmentAnnouncer::Listeners no_listeners;
  Segment* segment = enter(*base, raw_bytes, Stream{}, no_listeners);
  MutexLock lock(mutex_);
  blocks_.publish(segment, /*fresh=*/true);
  return {};
}

Result<Allocation> Pool::grow_by_steps(const AllocationRequest& request, std::uint64_t charged) {
  const std::uint64_t wanted = next_segment_bytes(options_, reserved_bytes(), charged);
  auto grown = grow(request, charged, wanted);
  if (!grown.ok() && grown.status() == Status::kResourceExhausted && wanted > charged) {
    return grow(request, charged, charged);
  }
  return grown;
}

Result<Allocation> Pool::grow(const AllocationRequest& request, std::uint64_t charged, std::uint64_t usable) {
  std::uint64_t raw_bytes = 0;
  ONESIDED_TRY_ASSIGN(base, raw_memory(usable, request.stream, raw_bytes));
  SegmentAnnouncer::Listeners listeners;
  Segment* segment = enter(base, raw_bytes, request.stream, listeners);
  SegmentInfo info;
  {
    MutexLock lock(mutex_);
    segment->context = request.context;
    info = describe(*segment);
  }
  {
    const Announcing announcing(this);
    SegmentAnnouncer::added(listeners, info);
  }
  // Published and split under one lock, so that no other thread can take the memory that this thread requested.
  MutexLock lock(mutex_);
  blocks_.publish(segment);
  Block* block = blocks_.take(charged, request.stream);
  ONESIDED_CHECK(block, "a new segment of {} bytes contains no block of {}", usable, charged);
  return hand_out(block, request);
}

Segment* Pool::enter(void* base, std::uint64_t raw_bytes, Stream stream, SegmentAnnouncer::Listeners& listeners) {
  MutexLock lock(mutex_);
  Segment* segment = blocks_.add(base, raw_bytes, guard_bytes_, stream);
  growing_bytes_ -= raw_bytes;
  stats_.segment.increase(1);
  stats_.reserved_bytes.increase(raw_bytes);
  stats_.overhead_bytes.increase(segment->overhead_bytes());
  ++stats_.num_device_alloc;
  history_.add({PoolAction::kSegmentAlloc, reinterpret_cast<std::uintptr_t>(base), raw_bytes, stream, nullptr});
  listeners = announcer_.listeners();
  return segment;
}

Result<void*> Pool::raw_memory(std::uint64_t usable, Stream stream, std::uint64_t& raw_bytes) {
  std::uint64_t extra = options_.alignment > source_->natural_alignment()
                            ? options_.alignment - source_->natural_alignment()
                            : std::uint64_t{0};
  if (source_->honours_alignment()) extra = 0;
  {
    MutexLock lock(mutex_);
    extra = std::max(extra, extra_bytes_);
  }
  for (;;) {
    const auto padded = checked_add(usable, extra + guard_bytes_);
    const auto rounded = padded ? align_up(*padded, source_->granule_bytes()) : std::nullopt;
    if (!rounded) return Error{Status::kResourceExhausted, fmt::format("{} bytes do not fit an address space", usable)};
    raw_bytes = *rounded;
    ONESIDED_TRY_ASSIGN(base, raw_memory_of(raw_bytes, stream));
    const auto start = reinterpret_cast<std::uintptr_t>(base);
    if (BlockMap::usable_bytes(start, raw_bytes, guard_bytes_, options_.alignment) >= usable) return base;
    // The source's alignment is lower than stated: its ranges lose up to one alignment before the first boundary. From
    // now on that much more is requested.
    const bool hopeless = extra >= options_.alignment;
    extra = options_.alignment;
    const auto returned = source_->free(base, raw_bytes, stream);
    MutexLock lock(mutex_);
    growing_bytes_ -= raw_bytes;
    extra_bytes_ = extra;
    if (!returned.ok()) log_line(LogLevel::kError, returned.error().to_string());
    if (hopeless) {
      return Error{Status::kFailed,
                   fmt::format("{} returned {} for {} bytes, which cannot contain {} bytes aligned to {}",
                               source_->name(), base, raw_bytes, usable, options_.alignment)};
    }
  }
}

Result<void*> Pool::raw_memory_of(std::uint64_t raw_bytes, Stream stream) {
  {
    MutexLock lock(mutex_);
    const auto held = static_cast<std::uint64_t>(stats_.reserved_bytes.current) + growing_bytes_;
    if (options_.max_bytes != 0 && (raw_bytes > options_.max_bytes || held > options_.max_bytes - raw_bytes)) {
      return Error{Status::kResourceExhausted,
                   fmt::format("the pool holds {} bytes; the limit is {} (max_bytes)", held, options_.max_bytes)};
    }
    growing_bytes_ += raw_bytes;
  }
  auto base = source_->allocate(raw_bytes, std::max(options_.alignment, source_->natural_alignment()), stream);
  if (!base.ok()) {
    MutexLock lock(mutex_);
    growing_bytes_ -= raw_bytes;
  }
  return base;
}

std::uint64_t Pool::reserved_bytes() {
  MutexLock lock(mutex_);
  return static_cast<std::uint64_t>(stats_.reserved_bytes.current);
}

void Pool::collect_garbage(std::uint64_t next_bytes) {
  if (options_.gc_threshold <= 0) return;
  const auto threshold = static_cast<std::uint64_t>(options_.gc_threshold * static_cast<double>(options_.max_bytes));
  const std::uint64_t after = reserved_bytes() + next_bytes;
  if (after > threshold) trim(after - threshold);
}

std::vector<Segment*> Pool::withdraw_idle(std::uint64_t wanted) {
  std::vector<Segment*> leaving;
  for (Segment* segment : blocks_.segments()) {
    if (BlockMap::droppable(*segment)) leaving.push_back(segment);
  }
  std::sort(leaving.begin(), leaving.end(),
            [](const Segment* a, const Segment* b) { return a->last_used < b->last_used; });
  std::uint64_t enough = 0;
  std::size_t count = 0;
  while (count < leaving.size() && enough < wanted) enough += leaving[count++]->raw_bytes;
  leaving.resize(count);
  for (Segment* segment : leaving) blocks_.withdraw(segment);
  return leaving;
}

std::uint64_t Pool::trim(std::uint64_t wanted, Patience patience) {
  if (!process_.same_process()) return 0;
  if (pending_.any()) {
    take_back(patience == Patience::kWaitForStreams ? pending_.wait_all() : pending_.take_finished());
  }
  std::vector<Segment*> leaving;
  SegmentAnnouncer::Listeners listeners;
  {
    MutexLock lock(mutex_);
    leaving = withdraw_idle(wanted);
    listeners = announcer_.listeners();
  }
  if (leaving.empty()) return 0;
  // A block is freed when the host is done with it; its stream may still be working.
  if (const auto waited = device_.synchronize(); !waited.ok()) log_line(LogLevel::kError, waited.error().to_string());
  std::uint64_t returned_bytes = 0;
  for (Segment* segment : leaving) returned_bytes += drop(segment, listeners);
  return returned_bytes;
}

std::uint64_t Pool::drop(Segment* segment, const SegmentAnnouncer::Listeners& listeners) {
  SegmentInfo info;
  {
    MutexLock lock(mutex_);
    info = describe(*segment);
  }
  if (!SegmentAnnouncer::let_go(listeners, info)) {
    MutexLock lock(mutex_);
    segment->state = SegmentState::kStuck;
    return 0;
  }
  SegmentAnnouncer::dropped(listeners, info);
  {
    // Removed before it is freed, because the source may give the same address to another thread immediately.
    MutexLock lock(mutex_);
    stats_.segment.decrease(1);
    stats_.overhead_bytes.decrease(segment->overhead_bytes());
    stats_.reserved_bytes.decrease(info.raw_bytes);
    ++stats_.num_device_free;
    history_.add({PoolAction::kSegmentFree, info.raw_address, info.raw_bytes, info.stream, nullptr});
    blocks_.erase(segment);
  }
  void* raw_base = reinterpret_cast<void*>(info.raw_address);
  if (const auto freed = source_->free(raw_base, info.raw_bytes, info.stream); !freed.ok()) {
    log_line(LogLevel::kError, freed.error().to_string());
  }
  return info.raw_bytes;
}

Error Pool::exhausted(std::uint64_t charged, const Error& cause) {
  const auto device = device_.memory_info();
  PoolStats now;
  {
    MutexLock lock(mutex_);
    ++stats_.num_ooms;
    now = stats_;
    history_.add({PoolAction::kOutOfMemory, device.ok() ? device->free_bytes : 0, charged, {}, nullptr});
  }
  return {Status::kResourceExhausted,
          fmt::format("{} bytes requested from an aligned pool on {} ({} reserved, {} allocated, {} overhead): {}",
                      charged, device_.name(), now.reserved_bytes.current, now.allocated_bytes.current,
                      now.overhead_bytes.current, cause.text())};
}

}  // namespace onesided
