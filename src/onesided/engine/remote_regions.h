// describe() on one side, import_desc() on the other: remote addresses together with the registrations that they belong
// to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/engine/plan.h"
#include "onesided/engine/transfer.h"
#include "onesided/wire/descriptor.h"

namespace onesided {

// Items for one transfer, bound to the registrations they were described from. A value.
struct BoundItems {
  InstanceId instance;
  std::vector<TransferItem> items;
  std::vector<RegionKey> keys;
  TransferList list() const { return {items, &instance, keys}; }
};

// The ranges that another engine described. A value.
class RemoteRegions {
 public:
  struct Pair {
    std::uint64_t local = 0;
    std::uint64_t item = 0;    // which described range
    std::uint64_t offset = 0;  // from its start
    std::uint64_t nbytes = 0;
  };
  // Errors: PARAM_INVALID, UNSUPPORTED, as decode_description().
  static Result<RemoteRegions> decode(std::span<const std::uint8_t> blob);

  const std::string& engine_id() const { return description_.engine_id; }
  const InstanceId& instance() const { return description_.instance; }
  const std::vector<DescribedItem>& items() const { return description_.items; }
  // Appends to `bound`. PARAM_INVALID: no such item, or the pair exceeds it.
  Result<void> bind(const Pair& pair, BoundItems& bound) const;

 private:
  explicit RemoteRegions(Description description) : description_(std::move(description)) {}
  Description description_;
};

}  // namespace onesided
