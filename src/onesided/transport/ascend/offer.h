// HIXL has an address of its own and reaches only the memory that was registered when it connected. Both are told
// over a data stream of the engine's own authenticated session: one request byte, one answer, as often as needed.
// The bytes: docs/vendor_library.md.
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

// The peer's side of a stream. Questions are numbered: the answer to one that was given up comes late, and in pieces,
// and must not be taken for the answer to the next. Confined to one thread.
class OfferStream {
 public:
  // The descriptor is non-blocking.
  explicit OfferStream(Fd stream) : stream_(std::move(stream)) {}
  // Asks and waits. TIMEOUT: ask again, if you like. PEER_LOST: the owner closed it.
  Result<Offer> ask(Deadline deadline);

 private:
  struct Answer {
    std::uint32_t tag = 0;
    std::size_t nbytes = 0;  // of the payload, which follows
  };
  Result<std::optional<Answer>> head() const;
  Result<void> receive(Deadline deadline);

  const Fd stream_;
  std::uint32_t tag_ = 0;         // of the latest question
  std::vector<std::uint8_t> in_;  // what has come of answers that are not whole
};

// The owner's side. The tag of the next question; nothing: the peer closed the stream, or sent what is no request.
// Blocks until one is there.
std::optional<std::uint32_t> wait_request(const Fd& stream);
Result<void> send_offer(const Fd& stream, std::uint32_t tag, const Offer& offer, Deadline deadline);

}  // namespace onesided::ascend
