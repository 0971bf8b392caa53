// The regions of this engine that are registered with HIXL, with their handles and versions. A link compares versions
// to decide whether HIXL must reconnect.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/transport/ascend/hixl_client.h"
#include "onesided/wire/region_desc.h"

namespace onesided::ascend {

// HIXL accepts about this many registrations; the next one is refused here, because otherwise a later connect would
// fail.
inline constexpr std::size_t kMaxSegments = 4000;

// Internally synchronized. `client` must outlive it.
class SegmentBook {
 public:
  explicit SegmentBook(HixlClient& client) : client_(client) {}

  // Registers the region with HIXL. A failure is recorded for the region: transfers that need it end with that error.
  void add(const RegionDesc& region);
  // Deregisters it from HIXL. The region must be unused.
  void forget(RegionKey key);
  // Incremented with every change.
  std::uint64_t version() const;
  // Regions registered with HIXL, sorted, and the version of this list.
  std::vector<RegionKey> keys(std::uint64_t& version) const;
  // The version at which the region that contains the range was registered with HIXL. Errors: the failure of its
  // registration; PARAM_INVALID if no region contains the range.
  Result<std::uint64_t> version_of(std::uint64_t address, std::uint64_t nbytes) const;

 private:
  struct Entry {
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
    bool device = false;
    void* handle = nullptr;
    std::uint64_t version = 0;
    std::optional<Error> failure;  // then there is no handle
  };
  const Entry* holding(std::uint64_t address, std::uint64_t nbytes) const ONESIDED_REQUIRES(mutex_);

  HixlClient& client_;
  mutable Mutex mutex_;
  std::map<RegionKey, Entry> entries_ ONESIDED_GUARDED_BY(mutex_);
  std::map<std::uint64_t, RegionKey> by_address_[2] ONESIDED_GUARDED_BY(mutex_);  // host, device: they may overlap
  std::size_t registered_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::uint64_t version_ ONESIDED_GUARDED_BY(mutex_) = 1;
};

}  // namespace onesided::ascend
