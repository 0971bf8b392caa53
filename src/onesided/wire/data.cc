#include "onesided/wire/data.h"

#include <fmt/core.h>

#include "onesided/base/align.h"

namespace onesided {
namespace {

// "OSQ1", "OSA1" in the byte order of the wire.
constexpr std::uint32_t kRequestMagic = 0x3151534f;
constexpr std::uint32_t kReplyMagic = 0x3141534f;

Status read_failure(ByteReader& in) {
  const auto status = static_cast<Status>(in.u32("status"));
  if (status_name(status) == "UNKNOWN") in.fail("status");
  return status;
}

}  // namespace

void encode_data_request(ByteWriter& out, DataOp op, std::uint64_t id, std::span<const DataItem> items) {
  std::uint64_t payload_bytes = 0;
  for (const auto& item : items) payload_bytes += item.nbytes;
  out.u32(kRequestMagic);
  out.u32(static_cast<std::uint32_t>(op));
  out.u64(id);
  out.u32(static_cast<std::uint32_t>(items.size()));
  out.u32(0);
  out.u64(payload_bytes);
  for (const auto& item : items) {
    out.u32(item.key.index);
    out.u32(item.key.generation);
    out.u64(item.address);
    out.u64(item.nbytes);
  }
}

void encode_data_reply(ByteWriter& out, const DataReplyHead& head, std::span<const DataFailure> failures) {
  out.u32(kReplyMagic);
  out.u32(head.failures);
  out.u64(head.id);
  out.u64(head.payload_bytes);
  for (const auto& failure : failures) {
    out.u32(failure.item);
    out.u32(static_cast<std::uint32_t>(failure.status));
  }
}

void encode_data_tail(ByteWriter& out, const DataReplyTail& tail) {
  out.u64(tail.good_bytes);
  out.u32(static_cast<std::uint32_t>(tail.status));
  out.u32(0);
}

Result<DataRequestHead> decode_data_request_head(std::span<const std::uint8_t> bytes) {
  ByteReader in(bytes);
  if (in.u32("magic") != kRequestMagic) in.fail("magic");
  const auto op = in.u32("op");
  if (op != 1 && op != 2) in.fail("op");
  DataRequestHead head;
  head.op = op == 2 ? DataOp::kWrite : DataOp::kRead;
  head.id = in.u64("id");
  head.items = in.u32("items");
  if (head.items == 0 || head.items > kMaxDataItems) in.fail("items");
  if (in.u32("zero") != 0) in.fail("zero");
  head.payload_bytes = in.u64("payload_bytes");
  if (head.payload_bytes == 0 || head.payload_bytes > kMaxDataPayload) in.fail("payload_bytes");
  ONESIDED_TRY(in.finish("data request"));
  return head;
}

Result<std::vector<DataItem>> decode_data_items(const DataRequestHead& head, std::span<const std::uint8_t> bytes) {
  ByteReader in(bytes);
  std::vector<DataItem> items;
  items.reserve(head.items);
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < head.items && !in.failed(); ++i) {
    DataItem item;
    item.key = {in.u32("region index"), in.u32("region generation")};
    item.address = in.u64("address");
    item.nbytes = in.u64("length");
    // Each is below the limit, so that their sum cannot overflow.
    if (item.nbytes == 0 || item.nbytes > kMaxDataPayload || !checked_add(item.address, item.nbytes)) in.fail("length");
    sum += item.nbytes;
    items.push_back(item);
  }
  if (sum != head.payload_bytes) in.fail("payload_bytes");
  ONESIDED_TRY(in.finish("data request"));
  return items;
}

Result<DataReplyHead> decode_data_reply_head(std::span<const std::uint8_t> bytes) {
  ByteReader in(bytes);
  if (in.u32("magic") != kReplyMagic) in.fail("magic");
  DataReplyHead head;
  head.failures = in.u32("failures");
  if (head.failures > kMaxDataItems) in.fail("failures");
  head.id = in.u64("id");
  head.payload_bytes = in.u64("payload_bytes");
  if (head.payload_bytes > kMaxDataPayload) in.fail("payload_bytes");
  ONESIDED_TRY(in.finish("data reply"));
  return head;
}

Result<std::vector<DataFailure>> decode_data_failures(std::uint32_t items, std::span<const std::uint8_t> bytes) {
  ByteReader in(bytes);
  std::vector<DataFailure> failures;
  failures.reserve(bytes.size() / kDataFailureBytes);
  std::uint64_t least = 0;
  while (in.left() > 0) {
    DataFailure failure;
    failure.item = in.u32("item");
    failure.status = read_failure(in);
    if (failure.item < least || failure.item >= items) in.fail("item");
    if (failure.status == Status::kSuccess) in.fail("status");
    least = failure.item + std::uint64_t{1};
    failures.push_back(failure);
  }
  ONESIDED_TRY(in.finish("data reply"));
  return failures;
}

Result<DataReplyTail> decode_data_tail(std::uint64_t payload_bytes, std::span<const std::uint8_t> bytes) {
  ByteReader in(bytes);
  DataReplyTail tail;
  tail.good_bytes = in.u64("good_bytes");
  tail.status = read_failure(in);
  if (in.u32("zero") != 0) in.fail("zero");
  const bool whole = tail.good_bytes == payload_bytes;
  if (tail.good_bytes > payload_bytes || whole != (tail.status == Status::kSuccess)) in.fail("good_bytes");
  ONESIDED_TRY(in.finish("data reply tail"));
  return tail;
}

}  // namespace onesided
