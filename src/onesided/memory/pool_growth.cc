// Why: the slow path of a pool, in the order users may rely on: more raw memory, the pool's own pending blocks, its
// idle segments, what others cache, and only then an error.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "onesided/base/log.h"
#include "onesided/memory/pool.h"

namespace onesided {

Result<Allocation> Pool::allocate_by_growing(const AllocationRequest& request, std::uint64_t charged) {
  if (!request.device_quiet) {
    collect_garbage(charged);
    if (auto allocation = take_free(request, charged)) return *allocation;
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
    if (!grown.ok() && grown.status() == Status::kResourceExhausted && reclaim_elsewhere_ &&
        reclaim_elsewhere_(charged)) {
      grown = grow(request, charged, charged);
    }
  }
  if (grown.ok() || grown.status() != Status::kResourceExhausted) return grown;
  // Another thread may have given a block back meanwhile.
  if (auto allocation = take_free(request, charged)) return *allocation;
  return exhausted(charged, grown.error());
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
  SegmentAnnouncer::added(listeners, info);
  // Published and cut under one lock: no other thread can take what this one grew for.
  MutexLock lock(mutex_);
  blocks_.publish(segment);
  Block* block = blocks_.take(charged, request.stream);
  ONESIDED_CHECK(block, "a new segment of {} bytes has no block of {}", usable, charged);
  return hand_out(block, request);
}

Segment* Pool::enter(void* base, std::uint64_t raw_bytes, Stream stream, SegmentAnnouncer::Listeners& listeners) {
  MutexLock lock(mutex_);
  Segment* segment = blocks_.add(base, raw_bytes, options_.guard_bytes, stream);
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
  {
    MutexLock lock(mutex_);
    extra = std::max(extra, extra_bytes_);
  }
  for (;;) {
    const auto padded = checked_add(usable, extra + options_.guard_bytes);
    const auto rounded = padded ? align_up(*padded, source_->granule_bytes()) : std::nullopt;
    if (!rounded) return Error{Status::kResourceExhausted, fmt::format("{} bytes do not fit an address space", usable)};
    raw_bytes = *rounded;
    ONESIDED_TRY_ASSIGN(base, raw_memory_of(raw_bytes, stream));
    const auto start = reinterpret_cast<std::uintptr_t>(base);
    if (BlockMap::usable_bytes(start, raw_bytes, options_.guard_bytes, options_.alignment) >= usable) return base;
    // The source is worse aligned than it says: its ranges lose up to an alignment to the first boundary. Ask for that
    // much more from now on.
    const bool hopeless = extra >= options_.alignment;
    extra = options_.alignment;
    const auto returned = source_->free(base, raw_bytes, stream);
    MutexLock lock(mutex_);
    growing_bytes_ -= raw_bytes;
    extra_bytes_ = extra;
    if (!returned.ok()) log_line(LogLevel::kError, returned.error().to_string());
    if (hopeless) {
      return Error{Status::kFailed, fmt::format("{} returned {} for {} bytes: no room for {} bytes aligned to {}",
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
                   fmt::format("the pool holds {} bytes and may hold {} (max_bytes)", held, options_.max_bytes)};
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

std::uint64_t Pool::trim(std::uint64_t wanted) {
  if (pending_.any()) take_back(pending_.take_finished());
  std::vector<Segment*> leaving;
  std::vector<SegmentInfo> infos;
  SegmentAnnouncer::Listeners listeners;
  {
    MutexLock lock(mutex_);
    for (Segment* segment : blocks_.segments()) {
      if (BlockMap::idle(*segment)) leaving.push_back(segment);
    }
    std::sort(leaving.begin(), leaving.end(),
              [](const Segment* a, const Segment* b) { return a->last_used < b->last_used; });
    std::uint64_t enough = 0;
    std::size_t count = 0;
    while (count < leaving.size() && enough < wanted) enough += leaving[count++]->raw_bytes;
    leaving.resize(count);
    for (Segment* segment : leaving) {
      blocks_.withdraw(segment);
      infos.push_back(describe(*segment));
    }
    listeners = announcer_.listeners();
  }
  if (leaving.empty()) return 0;
  // Blocks are given back when the host is done with them; their stream may still be at work.
  if (const auto waited = device_.synchronize(); !waited.ok()) log_line(LogLevel::kError, waited.error().to_string());
  std::uint64_t returned_bytes = 0;
  for (std::size_t i = 0; i < leaving.size(); ++i) {
    SegmentAnnouncer::dropped(listeners, infos[i]);
    const std::uint64_t raw_bytes = infos[i].raw_bytes;
    void* raw_base = reinterpret_cast<void*>(infos[i].raw_address);
    {
      // Forgotten before it is freed: the source may give the same address to another thread at once.
      MutexLock lock(mutex_);
      stats_.segment.decrease(1);
      stats_.overhead_bytes.decrease(leaving[i]->overhead_bytes());
      stats_.reserved_bytes.decrease(raw_bytes);
      ++stats_.num_device_free;
      history_.add({PoolAction::kSegmentFree, infos[i].raw_address, raw_bytes, infos[i].stream, nullptr});
      blocks_.erase(leaving[i]);
    }
    if (const auto freed = source_->free(raw_base, raw_bytes, infos[i].stream); !freed.ok()) {
      log_line(LogLevel::kError, freed.error().to_string());
    }
    returned_bytes += raw_bytes;
  }
  return returned_bytes;
}

Error Pool::exhausted(std::uint64_t charged, const Error& cause) {
  PoolStats now;
  {
    MutexLock lock(mutex_);
    ++stats_.num_ooms;
    now = stats_;
    if (history_.on()) history_.add({PoolAction::kOutOfMemory, 0, charged, {}, nullptr});
  }
  return {Status::kResourceExhausted,
          fmt::format("{} bytes asked of an aligned pool on {} ({} reserved, {} allocated, {} overhead): {}", charged,
                      device_.name(), now.reserved_bytes.current, now.allocated_bytes.current,
                      now.overhead_bytes.current, cause.text())};
}

}  // namespace onesided
