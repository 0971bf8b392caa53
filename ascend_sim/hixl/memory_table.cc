#include "memory_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "onesided/base/align.h"

namespace onesided::hixl_abi {

void SegmentSet::insert(const Segment& segment) {
  by_type_[static_cast<std::size_t>(segment.type)].emplace(segment.address, segment.nbytes);
}

void SegmentSet::erase(const Segment& segment) {
  by_type_[static_cast<std::size_t>(segment.type)].erase(segment.address);
}

bool SegmentSet::contains(const Segment& segment) const {
  const Ranges& ranges = by_type_[static_cast<std::size_t>(segment.type)];
  const auto found = ranges.find(segment.address);
  return found != ranges.end() && found->second == segment.nbytes;
}

bool SegmentSet::overlaps(const Segment& segment) const {
  const Ranges& ranges = by_type_[static_cast<std::size_t>(segment.type)];
  const auto after = ranges.lower_bound(segment.address);
  if (after != ranges.end() && after->first - segment.address < segment.nbytes) return true;
  if (after == ranges.begin()) return false;
  const auto before = std::prev(after);
  return segment.address - before->first < before->second;
}

std::uint64_t SegmentSet::run(std::uint64_t address, std::uint64_t nbytes) const {
  std::uint64_t best = 0;
  for (const Ranges& ranges : by_type_) {
    auto after = ranges.upper_bound(address);
    if (after == ranges.begin()) continue;
    const auto& [start, length] = *std::prev(after);
    if (address - start < length) best = std::max(best, length - (address - start));
  }
  return std::min(best, nbytes);
}

bool SegmentSet::covers(std::uint64_t address, std::uint64_t nbytes) const {
  if (nbytes == 0 || !checked_add(address, nbytes)) return false;
  while (nbytes > 0) {
    const std::uint64_t step = run(address, nbytes);
    if (step == 0) return false;
    address += step;
    nbytes -= step;
  }
  return true;
}

std::vector<Segment> SegmentSet::all() const {
  std::vector<Segment> out;
  out.reserve(size());
  for (const MemType type : {MemType::kHost, MemType::kDevice})
    for (const auto& [address, nbytes] : by_type_[static_cast<std::size_t>(type)])
      out.push_back({address, nbytes, type});
  return out;
}

Result<MemoryTable::Added> MemoryTable::add(const Segment& segment) {
  if (segment.address == 0) return Error(Status::kParamInvalid, "RegisterMem: the address is null");
  if (segment.nbytes == 0) return Error(Status::kParamInvalid, "RegisterMem: the length is 0");
  if (!checked_add(segment.address, segment.nbytes))
    return Error(Status::kParamInvalid, fmt::format("RegisterMem: {:#x} + {} bytes passes the end of memory",
                                                    segment.address, segment.nbytes));
  MutexLock lock(mutex_);
  if (const auto found = handles_.find(segment); found != handles_.end()) {
    ++entries_[found->second].uses;
    return Added{found->second, false};
  }
  if (segments_.overlaps(segment))
    return Error(Status::kParamInvalid,
                 fmt::format("RegisterMem: [{:#x}, {:#x}) overlaps registered memory of the same "
                             "type without being equal to it",
                             segment.address, segment.address + segment.nbytes));
  const Handle handle = next_++;
  segments_.insert(segment);
  shared_ = nullptr;
  handles_.emplace(segment, handle);
  entries_.emplace(handle, Entry{segment, 1});
  return Added{handle, true};
}

std::optional<MemoryTable::Removed> MemoryTable::remove(Handle handle) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(handle);
  if (found == entries_.end()) return std::nullopt;
  Removed removed{found->second.segment, --found->second.uses == 0};
  if (removed.last) {
    segments_.erase(removed.segment);
    shared_ = nullptr;
    handles_.erase(removed.segment);
    entries_.erase(found);
  }
  return removed;
}

std::shared_ptr<const SegmentSet> MemoryTable::snapshot() const {
  MutexLock lock(mutex_);
  if (!shared_) shared_ = std::make_shared<const SegmentSet>(segments_);
  return shared_;
}

}  // namespace onesided::hixl_abi
