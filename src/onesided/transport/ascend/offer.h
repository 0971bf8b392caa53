// Exchange of HIXL's address and registered memory between engines. HIXL has an address of its own and reaches only
// memory that was registered when it connected. Both are sent over a data stream of the engine's authenticated session:
// one request, one answer, repeated as needed. The format is in docs/vendor_library.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onesided/base/clock.h"
#include "onesided/base/fd.h"
#include "onesided/base/result.h"
#include "onesided/wire/region_desc.h"

namespace onesided::ascend {

// An owner's offer to a peer: HIXL connected to `hixl_engine` reaches `regions`. A value.
struct Offer {
  std::uint64_t meta_version = 0;  // incremented with every change of the registered memory
  std::string hixl_engine;         // "ip:port"
  std::vector<RegionKey> regions;  // sorted
  friend bool operator==(const Offer&, const Offer&) = default;
};

std::vector<std::uint8_t> encode_offer(const Offer& offer);
// PARAM_INVALID, with the field's name, for every input that encode_offer() does not produce.
Result<Offer> decode_offer(const std::vector<std::uint8_t>& payload);

// The peer's side of a stream. Requests are numbered, because the answer to a request that timed out may arrive late
// and in pieces and must not be taken for the answer to the next one. Confined to one thread.
class OfferStream {
 public:
  // The descriptor is non-blocking.
  explicit OfferStream(Fd stream) : stream_(std::move(stream)) {}
  // Sends a request and waits for its answer. TIMEOUT: may be repeated. PEER_LOST: the owner closed the stream.
  Result<Offer> ask(Deadline deadline);

 private:
  struct Answer {
    std::uint32_t tag = 0;
    std::size_t nbytes = 0;  // of the payload, which follows
  };
  Result<std::optional<Answer>> head() const;
  Result<void> receive(Deadline deadline);

  const Fd stream_;
  std::uint32_t tag_ = 0;         // of the latest request
  std::vector<std::uint8_t> in_;  // received part of an incomplete answer
};

// The owner's side: blocks until a request arrives and returns its tag. std::nullopt: the peer closed the stream or
// sent something else.
std::optional<std::uint32_t> wait_request(const Fd& stream);
Result<void> send_offer(const Fd& stream, std::uint32_t tag, const Offer& offer, Deadline deadline);

}  // namespace onesided::ascend
