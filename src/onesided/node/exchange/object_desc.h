// The description of an object for its readers: for each tensor the kind of memory and its ranges, followed by the
// engine's description of those ranges. It is sent between machines as opaque bytes in Ray's metadata, so it is
// compact, has a version, and its decoder is total: every byte string becomes an object or an error.
//
//   "OSRO"  u8 version = 1  varint tensors
//   per tensor: varint (pieces << 1 | device memory), then a varint per piece: its bytes, > 0
// the rest: the engine's description of all pieces, in order (empty if there is no piece) varint: 7 bits a byte, lowest
// first, at most 10 bytes, no superfluous zero byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/device/device.h"

namespace onesided {

// One tensor of an object. A tensor is one piece, or more if it spans several registrations; none if it has no bytes.
struct TensorDesc {
  MemType type = MemType::kHost;
  std::vector<std::uint64_t> pieces;  // bytes of each, > 0; the sum does not overflow

  std::uint64_t nbytes() const;
  friend bool operator==(const TensorDesc&, const TensorDesc&) = default;
};

// A value.
struct ObjectDesc {
  std::vector<TensorDesc> tensors;
  std::string regions;  // EnginePort::describe() of all pieces

  std::string encode() const;
  // PARAM_INVALID, with the reason, for every input that encode() does not produce.
  static Result<ObjectDesc> decode(std::string_view bytes);
  friend bool operator==(const ObjectDesc&, const ObjectDesc&) = default;
};

}  // namespace onesided
