// Control messages have one spelling each: whatever decodes must encode to the same bytes.
#include <algorithm>

#include "fuzz_target.h"
#include "onesided/base/check.h"
#include "onesided/wire/control.h"

namespace onesided {
namespace {

void check(std::span<const std::uint8_t> input) {
  const auto message = decode_control(input);
  if (!message) {
    ONESIDED_CHECK(message.status() == Status::kParamInvalid, "{}", message.error().to_string());
    return;
  }
  const auto again = encode_control(*message);
  ONESIDED_CHECK(std::ranges::equal(again, input), "{} has two spellings", control_message_name(*message));
}

}  // namespace
}  // namespace onesided

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  onesided::check({data, size});
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using namespace onesided;
  RegionDesc region;
  region.key = {7, 3};
  region.address = 0x7f0000000000;
  region.nbytes = 1 << 20;
  region.pieces = {{11, 0, 0, 1 << 19}, {12, 4096, 1 << 19, 1 << 19}};
  RegionUpdate update;
  update.epoch = 5;
  update.added = {region, region};
  update.dropped = {{4, 9}};
  update.file_ids = {11, 12};
  return {encode_control(TableOffer{}),
          encode_control(update),
          encode_control(TableRequest{8}),
          encode_control(TableSynced{9}),
          encode_control(Notify{1, "name", "message"}),
          encode_control(NotifyAck{1, Status::kBusy}),
          encode_control(Bye{Status::kClosed, "good bye"}),
          encode_control(Heartbeat{})};
}
