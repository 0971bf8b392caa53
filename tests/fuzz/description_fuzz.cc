// Descriptions come from files, queues and strangers; whatever decodes must encode to the same bytes. The fuzzer
// does not have to guess the checksum: it is put right for it.
#include <algorithm>

#include "fuzz_target.h"
#include "onesided/base/check.h"
#include "onesided/wire/descriptor.h"

namespace onesided {
namespace {

constexpr std::size_t kChecksumBytes = 8;

void check(std::span<const std::uint8_t> input) {
  const auto description = decode_description(input);
  if (!description) return;
  ONESIDED_CHECK(std::ranges::equal(encode_description(*description), input), "two spellings");
}

std::vector<std::uint8_t> with_checksum(std::span<const std::uint8_t> input) {
  if (input.size() < kChecksumBytes) return {};
  std::vector<std::uint8_t> bytes(input.begin(), input.end());
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < bytes.size() - kChecksumBytes; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  for (std::size_t i = 0; i < kChecksumBytes; ++i)
    bytes[bytes.size() - kChecksumBytes + i] = static_cast<std::uint8_t>(hash >> (8 * i));
  return bytes;
}

}  // namespace
}  // namespace onesided

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  onesided::check({data, size});
  onesided::check(onesided::with_checksum({data, size}));
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using namespace onesided;
  Description description{"127.0.0.1:5000", {}, {}};
  auto empty = encode_description(description);
  description.items = {{{1, 1}, 4096, 100, false}, {{2, 5}, 1ULL << 40, 1ULL << 30, true}};
  return {std::move(empty), encode_description(description)};
}
