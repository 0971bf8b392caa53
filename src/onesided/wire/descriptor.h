// Descriptions of registered memory: describe() encodes ranges as bytes that any channel can carry (a queue, a file, an
// object store), and import_desc() decodes them in another process. They name the engine instance and the
// registrations, so that memory that was replaced meanwhile is detected.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/wire/identity.h"
#include "onesided/wire/region_desc.h"

namespace onesided {

// One range inside one registered region. A value.
struct DescribedItem {
  RegionKey key;
  std::uint64_t address = 0;  // in the owner's process
  std::uint64_t nbytes = 0;   // > 0; address + nbytes does not overflow
  bool device = false;
  friend bool operator==(const DescribedItem&, const DescribedItem&) = default;
};

// The content of a description. A value.
struct Description {
  std::string engine_id;
  InstanceId instance;
  std::vector<DescribedItem> items;
  friend bool operator==(const Description&, const Description&) = default;
};

inline constexpr std::size_t kDescribedItemBytes = 25;

// A head of about 60 bytes and kDescribedItemBytes per item, with a checksum against accidental damage (not against
// forgery: the owner checks every access against its own table).
std::vector<std::uint8_t> encode_description(const Description& description);
// PARAM_INVALID: not a description, damaged, or truncated. UNSUPPORTED: another version; both are named.
Result<Description> decode_description(std::span<const std::uint8_t> blob);

}  // namespace onesided
