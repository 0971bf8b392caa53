// The messages of a data stream of the tcp transport. A request names ranges of the owner's registered memory; their
// bytes follow the request (WRITE) or its reply (READ), one after another without separators. See docs/wire_format.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/wire/bytes.h"
#include "onesided/wire/region_desc.h"

namespace onesided {

enum class DataOp : std::uint8_t { kRead = 1, kWrite = 2 };

// Limits of one request; a larger batch is sent as several requests.
inline constexpr std::uint32_t kMaxDataItems = 512;
inline constexpr std::uint64_t kMaxDataPayload = 4ULL << 20;

struct DataItem {
  RegionKey key;
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  friend bool operator==(const DataItem&, const DataItem&) = default;
};

// Initiator -> owner: head, then `items` items, then for WRITE `payload_bytes` of payload.
struct DataRequestHead {
  DataOp op = DataOp::kRead;
  std::uint64_t id = 0;
  std::uint32_t items = 0;          // 1..kMaxDataItems
  std::uint64_t payload_bytes = 0;  // sum over the items, 1..kMaxDataPayload
  friend bool operator==(const DataRequestHead&, const DataRequestHead&) = default;
};

// One refused item; its bytes are omitted from a READ's payload and discarded from a WRITE's.
struct DataFailure {
  std::uint32_t item = 0;
  Status status = Status::kFailed;
  friend bool operator==(const DataFailure&, const DataFailure&) = default;
};

// Owner -> initiator, in the order of the requests: head, failures, for READ the payload and a tail.
struct DataReplyHead {
  std::uint64_t id = 0;
  std::uint32_t failures = 0;       // in ascending order of their items
  std::uint64_t payload_bytes = 0;  // READ: sum over the items that did not fail. WRITE: 0
  friend bool operator==(const DataReplyHead&, const DataReplyHead&) = default;
};

// Only the first `good_bytes` bytes of the payload are the region's; then its registration ended (`status`), and zeros
// fill the announced length.
struct DataReplyTail {
  std::uint64_t good_bytes = 0;
  Status status = Status::kSuccess;
  friend bool operator==(const DataReplyTail&, const DataReplyTail&) = default;
};

inline constexpr std::size_t kDataRequestHeadBytes = 32;
inline constexpr std::size_t kDataItemBytes = 24;
inline constexpr std::size_t kDataReplyHeadBytes = 24;
inline constexpr std::size_t kDataFailureBytes = 8;
inline constexpr std::size_t kDataReplyTailBytes = 16;

void encode_data_request(ByteWriter& out, DataOp op, std::uint64_t id, std::span<const DataItem> items);
void encode_data_reply(ByteWriter& out, const DataReplyHead& head, std::span<const DataFailure> failures);
void encode_data_tail(ByteWriter& out, const DataReplyTail& tail);

// Each takes exactly the bytes of its part. PARAM_INVALID: the bytes are not the encoder's output.
Result<DataRequestHead> decode_data_request_head(std::span<const std::uint8_t> bytes);
// The items of a request with this decoded head: lengths > 0, sums that do not overflow and equal payload_bytes.
Result<std::vector<DataItem>> decode_data_items(const DataRequestHead& head, std::span<const std::uint8_t> bytes);
Result<DataReplyHead> decode_data_reply_head(std::span<const std::uint8_t> bytes);
// `items` of the request.
Result<std::vector<DataFailure>> decode_data_failures(std::uint32_t items, std::span<const std::uint8_t> bytes);
// `payload_bytes` of the reply's head.
Result<DataReplyTail> decode_data_tail(std::uint64_t payload_bytes, std::span<const std::uint8_t> bytes);

}  // namespace onesided
