// What arrives on a data stream becomes addresses and lengths; whatever decodes must be within the limits and have
// one spelling.
#include <algorithm>

#include "fuzz_target.h"
#include "onesided/base/align.h"
#include "onesided/base/check.h"
#include "onesided/wire/data.h"

namespace onesided {
namespace {

void check_request(std::span<const std::uint8_t> input) {
  if (input.size() < kDataRequestHeadBytes) return;
  const auto head = decode_data_request_head(input.first(kDataRequestHeadBytes));
  if (!head) return;
  const std::size_t nbytes = head->items_bytes();
  if (input.size() < kDataRequestHeadBytes + nbytes) return;
  const auto items = decode_data_items(*head, input.subspan(kDataRequestHeadBytes, nbytes));
  if (!items) return;
  std::uint64_t sum = 0;
  for (const auto& item : *items) {
    ONESIDED_CHECK(item.nbytes > 0 && checked_add(item.address, item.nbytes), "{}+{}", item.address, item.nbytes);
    const auto span = checked_span(item.nbytes, item.row_bytes, item.pitch);
    ONESIDED_CHECK(span && *span == item.span() && *span >= item.nbytes && checked_add(item.address, *span),
                   "{} bytes in rows of {}, {} apart", item.nbytes, item.row_bytes, item.pitch);
    sum += item.nbytes;
  }
  ONESIDED_CHECK(sum == head->payload_bytes && sum <= kMaxDataPayload, "sum {}", sum);
  ByteWriter again;
  encode_data_request(again, head->op, head->id, *items);
  ONESIDED_CHECK(std::ranges::equal(again.bytes(), input.first(kDataRequestHeadBytes + nbytes)), "two spellings");
}

void check_reply(std::span<const std::uint8_t> input) {
  if (input.size() < kDataReplyHeadBytes) return;
  const auto head = decode_data_reply_head(input.first(kDataReplyHeadBytes));
  if (!head) return;
  const std::size_t nbytes = head->failures * kDataFailureBytes;
  input = input.subspan(kDataReplyHeadBytes);
  if (input.size() < nbytes) return;
  const auto failures = decode_data_failures(kMaxDataItems, input.first(nbytes));
  if (!failures) return;
  ONESIDED_CHECK(failures->size() == head->failures, "{} of {}", failures->size(), head->failures);
  ONESIDED_CHECK(std::ranges::is_sorted(*failures, {}, &DataFailure::item), "out of order");
  input = input.subspan(nbytes);
  if (input.size() < kDataReplyTailBytes) return;
  const auto tail = decode_data_tail(head->payload_bytes, input.first(kDataReplyTailBytes));
  if (tail) ONESIDED_CHECK(tail->good_bytes <= head->payload_bytes, "{}", tail->good_bytes);
}

std::vector<std::uint8_t> reply_seed(DataReplyHead head, const std::vector<DataFailure>& failures, DataReplyTail tail) {
  ByteWriter out;
  encode_data_reply(out, head, failures);
  encode_data_tail(out, tail);
  return out.take();
}

std::vector<std::uint8_t> request_seed(DataOp op, const std::vector<DataItem>& items) {
  ByteWriter out;
  encode_data_request(out, op, 7, items);
  return out.take();
}

}  // namespace
}  // namespace onesided

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  onesided::check_request({data, size});
  onesided::check_reply({data, size});
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using namespace onesided;
  return {request_seed(DataOp::kRead, {{{1, 1}, 4096, 4096}}),
          request_seed(DataOp::kWrite, {{{1, 1}, 4096, 1}, {{2, 9}, 8192, 100}}),
          request_seed(DataOp::kRead, {{{1, 1}, 4096, 96, 32, 64}, {{2, 9}, 8192, 100}}),
          reply_seed({7, 0, 4096}, {}, {4096, Status::kSuccess}),
          reply_seed({7, 2, 4096}, {{0, Status::kStale}, {3, Status::kParamInvalid}}, {100, Status::kStale})};
}
