// Which of this engine's regions HIXL knows, under which handles, and since when: a link compares versions to see
// whether the vendor must connect anew.
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

// HIXL takes about this many registrations; we refuse the next one rather than let a connect fail later.
inline constexpr std::size_t kMaxSegments = 4000;

// Internally synchronized. `client` outlives it.
class SegmentBook {
 public:
  explicit SegmentBook(HixlClient& client) : client_(client) {}

  // Registers the region with HIXL. A failure is kept as the region's: transfers that need it end with it.
  void add(const RegionDesc& region);
  // Takes it back from HIXL. Nothing may use the region any more.
  void forget(RegionKey key);
  // Grows with every change.
  std::uint64_t version() const;
  // Regions that HIXL knows, sorted, and the version that they belong to.
  std::vector<RegionKey> keys(std::uint64_t& version) const;
  // The version at which HIXL learned of the region that holds the range. The failure of its registration, or
  // PARAM_INVALID: no region holds it.
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
