#include "onesided/transport/ascend/segment_book.h"

#include <fmt/format.h>

#include <utility>

#include "onesided/base/align.h"
#include "onesided/base/log.h"

namespace onesided::ascend {

void SegmentBook::add(const RegionDesc& region) {
  Entry entry{region.address, region.nbytes, region.device, nullptr, 0, std::nullopt};
  bool counted = false;
  {
    MutexLock lock(mutex_);
    counted = registered_ < kMaxSegments;
    if (counted) ++registered_;
  }
  if (counted) {
    auto handle =
        client_.register_mem(region.address, region.nbytes, region.device ? MemType::kDevice : MemType::kHost);
    if (handle)
      entry.handle = *handle;
    else
      entry.failure = handle.error();
  } else {
    entry.failure =
        Error(Status::kResourceExhausted, fmt::format("HIXL accepts about {} registrations, and this limit is reached; "
                                                      "register fewer, larger ranges (whole segments of a pool)",
                                                      kMaxSegments));
  }
  if (entry.failure) log_line(LogLevel::kWarn, "ascend: " + entry.failure->to_string());
  MutexLock lock(mutex_);
  if (entry.failure) {
    if (counted) --registered_;
  } else {
    entry.version = ++version_;
  }
  by_address_[entry.device ? 1 : 0][entry.address] = region.key;
  entries_[region.key] = std::move(entry);
}

void SegmentBook::forget(RegionKey key) {
  void* handle = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    handle = found->second.handle;
    by_address_[found->second.device ? 1 : 0].erase(found->second.address);
    const bool registered = !found->second.failure;
    entries_.erase(found);
    if (!registered) return;
    --registered_;
    ++version_;
  }
  if (const auto done = client_.deregister_mem(handle); !done)
    log_line(LogLevel::kWarn, "ascend: " + done.error().to_string());
}

std::uint64_t SegmentBook::version() const {
  MutexLock lock(mutex_);
  return version_;
}

std::vector<RegionKey> SegmentBook::keys(std::uint64_t& version) const {
  MutexLock lock(mutex_);
  version = version_;
  std::vector<RegionKey> out;
  out.reserve(registered_);
  for (const auto& [key, entry] : entries_)
    if (!entry.failure) out.push_back(key);
  return out;
}

const SegmentBook::Entry* SegmentBook::holding(std::uint64_t address, std::uint64_t nbytes) const {
  for (const auto& regions : by_address_) {
    const auto after = regions.upper_bound(address);
    if (after == regions.begin()) continue;
    const Entry& entry = entries_.at(std::prev(after)->second);
    if (range_within(address, nbytes, entry.address, entry.nbytes)) return &entry;
  }
  return nullptr;
}

Result<std::uint64_t> SegmentBook::version_of(std::uint64_t address, std::uint64_t nbytes) const {
  MutexLock lock(mutex_);
  const Entry* entry = holding(address, nbytes);
  if (!entry)
    return Error(Status::kParamInvalid, fmt::format("[{:#x}, {:#x}) lies in no region that is registered with HIXL",
                                                    address, address + nbytes));
  if (entry->failure) return *entry->failure;
  return entry->version;
}

}  // namespace onesided::ascend
