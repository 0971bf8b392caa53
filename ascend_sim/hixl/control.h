// Two vendor-style engines must tell each other things our engine has no word for: which memory was registered
// when they connected, that the driver refused some of it, and what to stage through which buffer. They do so in
// notifications under one reserved name; the decoder is total, since a peer may send anything.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "memory_table.h"
#include "onesided/base/result.h"

namespace onesided::hixl_abi {

// Name of the notifications that are ours; GetNotifies() never shows them.
inline constexpr std::string_view kControlName = "\x01onesided.hixl/1";

// Asked -> answered with the same tag. `reply_to` is the engine id that the answer goes to.
struct Hello {
  std::uint64_t tag = 0;
  std::string reply_to;
  friend bool operator==(const Hello&, const Hello&) = default;
};
// What the answering side had registered at that moment, or why it cannot be connected to.
struct HelloReply {
  std::uint64_t tag = 0;
  Status status = Status::kSuccess;
  std::string text;
  bool staging = false;  // it stages unregistered host memory
  std::vector<Segment> segments;
  friend bool operator==(const HelloReply&, const HelloReply&) = default;
};

// A range of the answering side's memory that is not registered. A value.
struct Piece {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};
// The answering side copies between its pieces and the asker's registered buffer at `buffer`, in order, without gaps.
struct StageRequest {
  std::uint64_t tag = 0;
  std::string reply_to;
  bool to_asker = false;  // true: pieces -> buffer (a READ); false: buffer -> pieces (a WRITE)
  std::uint64_t buffer = 0;
  std::int64_t timeout_ms = 0;
  std::vector<Piece> pieces;
  friend bool operator==(const StageRequest&, const StageRequest&) = default;
};
struct StageReply {
  std::uint64_t tag = 0;
  Status status = Status::kSuccess;
  std::string text;
  friend bool operator==(const StageReply&, const StageReply&) = default;
};

using Control = std::variant<Hello, HelloReply, StageRequest, StageReply>;

std::string encode(const Control& message);
// PARAM_INVALID, naming the field, for anything that encode() would not have written.
Result<Control> decode(std::string_view bytes);

}  // namespace onesided::hixl_abi
