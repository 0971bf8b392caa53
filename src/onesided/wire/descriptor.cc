#include "onesided/wire/descriptor.h"

#include <fmt/core.h>

#include "onesided/base/align.h"
#include "onesided/wire/bytes.h"
#include "onesided/wire/handshake.h"

namespace onesided {
namespace {

constexpr std::uint8_t kMagic[] = {'O', 'S', 'R', 'D'};
constexpr std::size_t kChecksumBytes = 8;

// FNV-1a, 64 bits.
std::uint64_t checksum(ByteSpan bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const auto byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

}  // namespace

std::vector<std::uint8_t> encode_description(const Description& description) {
  ByteWriter out;
  out.raw(kMagic);
  out.u16(kProtocolVersion);
  out.raw(description.instance.bytes);
  out.string(description.engine_id);
  out.u32(static_cast<std::uint32_t>(description.items.size()));
  for (const auto& item : description.items) {
    out.u32(item.key.index);
    out.u32(item.key.generation);
    out.u64(item.address);
    out.u64(item.nbytes);
    out.u8(item.device ? 1 : 0);
  }
  out.u64(checksum(out.bytes()));
  return out.take();
}

Result<Description> decode_description(std::span<const std::uint8_t> blob) {
  ByteReader in(blob);
  const auto magic = in.raw(sizeof kMagic, "magic");
  if (!std::ranges::equal(magic, kMagic))
    return Error(Status::kParamInvalid, "these bytes are not the result of describe() (they do not begin with 'OSRD')");
  const auto version = in.u16("version");
  if (!in.failed() && version != kProtocolVersion) {
    return Error(Status::kUnsupported, fmt::format("description: made by version {}; this engine reads version {}",
                                                   version, kProtocolVersion));
  }
  if (in.failed() || in.left() < kChecksumBytes) return Error(Status::kParamInvalid, "description: truncated");
  ByteReader tail(blob.last(kChecksumBytes));
  if (tail.u64("checksum") != checksum(blob.first(blob.size() - kChecksumBytes)))
    return Error(Status::kParamInvalid, "description: truncated or damaged (its checksum does not match)");
  Description out;
  out.instance.bytes = in.array<16>("instance");
  out.engine_id = in.string(kMaxEngineIdBytes, "engine_id");
  const auto count = in.count(kDescribedItemBytes, "items");
  out.items.reserve(count);
  for (std::size_t i = 0; i < count && !in.failed(); ++i) {
    DescribedItem item;
    item.key = {in.u32("region index"), in.u32("region generation")};
    item.address = in.u64("address");
    item.nbytes = in.u64("length");
    item.device = in.boolean("memory type");
    if (item.key.generation == 0) in.fail("region generation");
    if (item.nbytes == 0 || !checked_add(item.address, item.nbytes)) in.fail("length");
    out.items.push_back(item);
  }
  in.raw(kChecksumBytes, "checksum");
  ONESIDED_TRY(in.finish("description"));
  return out;
}

}  // namespace onesided
