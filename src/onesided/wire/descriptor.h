// Describe() turns pieces of registered memory into bytes that travel through anybody's hands (a queue, a file, an
// object store) and import_desc() reads them somewhere else. They name the engine instance and the registrations, so
// that memory that was replaced meanwhile is found out.
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
  std::uint64_t nbytes = 0;   // > 0; address + nbytes does not wrap
  bool device = false;
  friend bool operator==(const DescribedItem&, const DescribedItem&) = default;
};

// What describe() gives out. A value.
struct Description {
  std::string engine_id;
  InstanceId instance;
  std::vector<DescribedItem> items;
  friend bool operator==(const Description&, const Description&) = default;
};

inline constexpr std::size_t kDescribedItemBytes = 25;

// A head of about 60 bytes and kDescribedItemBytes an item, with a checksum against accidents (not against forgery: the
// owner checks every access against its own table).
std::vector<std::uint8_t> encode_description(const Description& description);
// PARAM_INVALID: not such bytes, damaged, or cut short. UNSUPPORTED: of another version, both are named.
Result<Description> decode_description(std::span<const std::uint8_t> blob);

}  // namespace onesided
