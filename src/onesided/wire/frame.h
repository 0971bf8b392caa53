// Frames, the units of a control connection. Their header is the same in all versions of the protocol, so that two
// versions can recognise each other.
#pragma once

#include <array>
#include <cstdint>

#include "onesided/base/result.h"
#include "onesided/wire/bytes.h"
#include "onesided/wire/identity.h"

namespace onesided {

enum class FrameKind : std::uint8_t { kHandshake = 1, kControl = 2 };

// 'O' 'S' | u8 version | u8 kind | u16 attached descriptors | u16 zero | u32 payload bytes. A value.
struct FrameHeader {
  FrameKind kind = FrameKind::kHandshake;
  std::uint16_t fds = 0;
  std::uint32_t payload_bytes = 0;
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

inline constexpr std::size_t kFrameHeaderBytes = 12;
// Limit before a peer is authenticated; longer payloads are not read.
inline constexpr std::uint32_t kMaxHandshakePayload = 8 * 1024;

std::array<std::uint8_t, kFrameHeaderBytes> encode_frame_header(const FrameHeader& header);
// UNSUPPORTED: another version; both are named. PARAM_INVALID: not a frame of this protocol, or over the limits of its
// kind.
Result<FrameHeader> decode_frame_header(std::span<const std::uint8_t, kFrameHeaderBytes> bytes);

}  // namespace onesided
