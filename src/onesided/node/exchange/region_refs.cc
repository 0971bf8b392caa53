#include "onesided/node/exchange/region_refs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "onesided/base/log.h"
#include "onesided/base/mutex_pause.h"

namespace onesided {
namespace {

// How long a deregistration waits for a reader; if the reader does not finish in this time, the region stays
// registered.
constexpr std::int64_t kDeregisterTimeoutMs = 10'000;
// How long the next registration of its addresses waits for such a reader.
constexpr std::int64_t kStuckTimeoutMs = 1'000;

bool overlaps(const MemRange& a, const MemRange& b) { return a.address < b.end() && b.address < a.end(); }

// The first part of `range` that none of the sorted, disjoint `parts` covers.
std::optional<MemRange> first_gap(const MemRange& range, std::span<const MemRange> parts) {
  std::uint64_t at = range.address;
  for (const MemRange& part : parts) {
    if (part.end() <= at) continue;
    if (part.address > at) {
      const std::uint64_t end = std::min(part.address, range.end());
      return end > at ? std::optional(MemRange{at, end - at, range.type}) : std::nullopt;
    }
    at = part.end();
    if (at >= range.end()) return std::nullopt;
  }
  return MemRange{at, range.end() - at, range.type};
}

// Extends `gap` in both directions inside `whole` up to the next of the sorted, disjoint `parts`.
MemRange widen(const MemRange& gap, const MemRange& whole, std::span<const MemRange> parts) {
  std::uint64_t begin = whole.address;
  std::uint64_t end = whole.end();
  for (const MemRange& part : parts) {
    if (part.end() <= gap.address) begin = std::max(begin, part.end());
    if (part.address >= gap.end()) end = std::min(end, part.address);
  }
  return {begin, end - begin, gap.type};
}

void insert_sorted(std::vector<MemRange>& parts, const MemRange& part) {
  parts.insert(std::ranges::lower_bound(parts, part.address, {}, &MemRange::address), part);
}

}  // namespace

Result<RegionRefs::Held> RegionRefs::hold(const TensorSpan& span) {
  MutexLock lock(mutex_);
  end_stuck(span.whole, lock);
  std::vector<MemRange> foreign;
  if (auto filled = fill(span, foreign, lock); !filled) {
    remove_unclaimed(span.whole, lock);
    return filled.error();
  }
  // The lock is held from here on, so that the registrations found by fill() are counted before another thread can
  // remove them.
  Held held;
  for (const auto& entry : settled(span.bytes, lock)) {
    Region& region = entry->second;
    const std::uint64_t begin = std::max(region.range.address, span.bytes.address);
    const std::uint64_t end = std::min(region.range.end(), span.bytes.end());
    insert_sorted(held.pieces, {begin, end - begin, span.bytes.type});
    held.regions.push_back(region.id);
    ++region.users;
    if (span.memory == kUnowned) continue;
    region.memories.insert(span.memory);
    regions_of_[span.memory].insert(region.id);
  }
  for (const MemRange& part : foreign) insert_sorted(held.pieces, part);
  return held;
}

Result<void> RegionRefs::fill(const TensorSpan& span, std::vector<MemRange>& foreign, MutexLock& lock) {
  while (true) {
    std::vector<MemRange> covered = foreign;
    for (const auto& entry : settled(span.whole, lock)) insert_sorted(covered, entry->second.range);
    const auto gap = first_gap(span.bytes, covered);
    if (!gap) return {};

    const std::uint64_t changes_before = changes_;
    const bool registered = [&] {
      const MutexPause pause(lock);
      return engine_.covers(*gap);
    }();
    // The covering region may have been an entry that another thread was adding or removing.
    if (changes_ != changes_before) continue;
    if (registered) {
      insert_sorted(foreign, *gap);
      continue;
    }
    // Other code may have registered a part of the memory around the tensor: then only the tensor is registered.
    const MemRange wide = widen(*gap, span.whole, covered);
    auto added = add(wide, lock);
    if (!added && wide != *gap) added = add(*gap, lock);
    if (!added)
      return added.error().with_context(fmt::format("registering {} bytes at {:#x} of a memory of {} bytes at {:#x}",
                                                    gap->nbytes, gap->address, span.whole.nbytes, span.whole.address));
  }
}

void RegionRefs::drop(const Held& held) {
  MutexLock lock(mutex_);
  for (const RegionId id : held.regions) {
    const auto address = address_of_.find(id);
    if (address == address_of_.end()) continue;  // its memory was freed first
    const auto entry = regions_.find(address->second);
    if (--entry->second.users > 0) continue;
    if (!keep_idle_ || entry->second.memories.empty()) remove(entry, lock);
  }
}

void RegionRefs::memory_freed(MemoryId memory) {
  MutexLock lock(mutex_);
  const auto found = regions_of_.find(memory);
  if (found == regions_of_.end()) return;
  const std::set<RegionId> ids = std::move(found->second);
  regions_of_.erase(found);
  for (const RegionId id : ids) {
    const auto address = address_of_.find(id);
    if (address == address_of_.end()) continue;
    const auto entry = regions_.find(address->second);
    entry->second.memories.erase(memory);
    if (entry->second.memories.empty()) remove(entry, lock);
  }
}

RegionRefs::Counts RegionRefs::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

std::vector<RegionRefs::ByAddress::iterator> RegionRefs::settled(const MemRange& range, MutexLock& lock) {
  while (true) {
    std::vector<ByAddress::iterator> found;
    auto entry = regions_.upper_bound(range.address);
    if (entry != regions_.begin()) --entry;
    bool all_live = true;
    for (; entry != regions_.end() && entry->first < range.end(); ++entry) {
      if (!overlaps(entry->second.range, range)) continue;
      all_live = all_live && entry->second.state == State::kLive;
      found.push_back(entry);
    }
    if (all_live) return found;
    changed_.wait(lock);
  }
}

Result<void> RegionRefs::add(const MemRange& range, MutexLock& lock) {
  // Another thread may have registered it while the lock was released: the caller checks again.
  if (!settled(range, lock).empty()) return {};
  ++changes_;
  const auto entry = regions_.emplace(range.address, Region{.range = range, .id = next_id_++}).first;
  auto handle = [&] {
    const MutexPause pause(lock);
    return engine_.register_range(range);
  }();
  changed_.notify_all();
  if (!handle) {
    regions_.erase(entry);
    return handle.error();
  }
  entry->second.handle = *handle;
  entry->second.state = State::kLive;
  address_of_.emplace(entry->second.id, range.address);
  ++counts_.registrations;
  ++counts_.regions;
  counts_.nbytes += range.nbytes;
  return {};
}

void RegionRefs::remove(ByAddress::iterator region, MutexLock& lock) {
  Region& leaving = region->second;
  leaving.state = State::kLeaving;
  address_of_.erase(leaving.id);
  for (const MemoryId memory : leaving.memories) {
    const auto found = regions_of_.find(memory);
    if (found != regions_of_.end() && found->second.erase(leaving.id) && found->second.empty())
      regions_of_.erase(found);
  }
  const std::uint64_t handle = leaving.handle;
  const MemRange range = leaving.range;
  const auto ended = [&] {
    const MutexPause pause(lock);
    auto outcome = engine_.deregister(handle, Deadline::after_ms(kDeregisterTimeoutMs));
    if (!outcome)
      log_line(LogLevel::kError, fmt::format("deregistering {} bytes at {:#x}: {}", range.nbytes, range.address,
                                             outcome.error().to_string()));
    return outcome;
  }();
  if (ended.status() == Status::kBusy) stuck_.emplace_back(range, handle);
  regions_.erase(region);
  ++changes_;
  ++counts_.deregistrations;
  --counts_.regions;
  counts_.nbytes -= range.nbytes;
  changed_.notify_all();
}

void RegionRefs::end_stuck(const MemRange& range, MutexLock& lock) {
  const auto in_the_way = [&range](const auto& stuck) { return overlaps(stuck.first, range); };
  std::vector<std::pair<MemRange, std::uint64_t>> tried;
  std::ranges::copy_if(stuck_, std::back_inserter(tried), in_the_way);
  if (tried.empty()) return;
  std::erase_if(stuck_, in_the_way);
  {
    const MutexPause pause(lock);
    // Still BUSY: the engine reports this to the next registration of these addresses.
    std::erase_if(tried, [this](const auto& stuck) {
      return engine_.deregister(stuck.second, Deadline::after_ms(kStuckTimeoutMs)).status() != Status::kBusy;
    });
  }
  stuck_.insert(stuck_.end(), tried.begin(), tried.end());
}

void RegionRefs::remove_unclaimed(const MemRange& range, MutexLock& lock) {
  for (bool again = true; again;) {
    again = false;
    for (const auto& entry : settled(range, lock)) {
      if (entry->second.users > 0 || !entry->second.memories.empty()) continue;
      remove(entry, lock);  // releases the lock, so the list is outdated afterwards
      again = true;
      break;
    }
  }
}

}  // namespace onesided
