// Why: HIXL has an address of its own and reaches only the memory that was registered when it connected. Both are told
// over a data stream of the engine's own authenticated session: one request byte, one answer, as often as needed.
// The bytes: docs/vendor_library.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onesided/base/clock.h"
#include "onesided/base/fd.h"
#include "onesided/base/result.h"
#include "onesided/wire/region_desc.h"

namespace onesided::ascend {

// What an owner offers a peer: connect HIXL to `hixl_engine` and you reach `regions`. A value.
struct Offer {
  std::uint64_t meta_version = 0;  // grows with every change of what is registered
  std::string hixl_engine;         // "ip:port"
  std::vector<RegionKey> regions;  // sorted
  friend bool operator==(const Offer&, const Offer&) = default;
};

std::vector<std::uint8_t> encode_offer(const Offer& offer);
// PARAM_INVALID, naming the field, for anything that encode_offer() would not have written.
Result<Offer> decode_offer(const std::vector<std::uint8_t>& payload);

// The peer's side: asks and waits. The descriptor is non-blocking. TIMEOUT; PEER_LOST: the owner closed it.
Result<Offer> request_offer(const Fd& stream, Deadline deadline);
// The owner's side. False: the peer closed the stream, or sent what is no request. Blocks until one is there.
bool wait_request(const Fd& stream);
Result<void> send_offer(const Fd& stream, const Offer& offer, Deadline deadline);

}  // namespace onesided::ascend
