#include "onesided/wire/frame.h"

#include <fmt/core.h>

#include "onesided/wire/control.h"

namespace onesided {
namespace {

static_assert(kProtocolVersion < 256, "the frame header has one byte for it");

}  // namespace

std::array<std::uint8_t, kFrameHeaderBytes> encode_frame_header(const FrameHeader& header) {
  ByteWriter out;
  out.u8('O');
  out.u8('S');
  out.u8(static_cast<std::uint8_t>(kProtocolVersion));
  out.u8(static_cast<std::uint8_t>(header.kind));
  out.u16(header.fds);
  out.u16(0);
  out.u32(header.payload_bytes);
  std::array<std::uint8_t, kFrameHeaderBytes> bytes{};
  std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
  return bytes;
}

Result<FrameHeader> decode_frame_header(std::span<const std::uint8_t, kFrameHeaderBytes> bytes) {
  ByteReader in(bytes);
  const bool ours = in.u8("magic") == 'O' && in.u8("magic") == 'S';
  if (!ours) return Error(Status::kParamInvalid, "not a frame of this protocol (it does not begin with 'OS')");
  const auto version = in.u8("version");
  if (version != kProtocolVersion) {
    return Error(Status::kUnsupported, fmt::format("the peer has protocol version {}, this engine version {}; "
                                                   "use the same release on both sides",
                                                   version, kProtocolVersion));
  }
  const auto kind = in.u8("kind");
  FrameHeader header;
  header.fds = in.u16("fds");
  const auto zero = in.u16("zero");
  header.payload_bytes = in.u32("payload_bytes");
  std::uint64_t limit = 0;
  switch (kind) {
    case static_cast<std::uint8_t>(FrameKind::kHandshake): limit = kMaxHandshakePayload; break;
    case static_cast<std::uint8_t>(FrameKind::kControl): limit = kMaxControlPayload; break;
    default: return Error(Status::kParamInvalid, fmt::format("frame: unknown kind {}", kind));
  }
  header.kind = static_cast<FrameKind>(kind);
  if (zero != 0) return Error(Status::kParamInvalid, "frame: reserved field is not zero");
  if (header.fds > kMaxAttachedFds || (header.fds != 0 && header.kind == FrameKind::kHandshake))
    return Error(Status::kParamInvalid, fmt::format("frame: {} attached descriptors", header.fds));
  if (header.payload_bytes > limit) {
    return Error(Status::kParamInvalid,
                 fmt::format("frame: {} bytes of payload; the limit is {}", header.payload_bytes, limit));
  }
  return header;
}

}  // namespace onesided
