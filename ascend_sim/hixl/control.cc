#include "control.h"

#include <fmt/format.h>

#include "onesided/base/align.h"

namespace onesided::hixl_abi {

namespace {

// Little-endian integers, strings and lists with a 32-bit count in front.
class Writer {
 public:
  void integer(std::uint64_t value, int nbytes) {
    for (int i = 0; i < nbytes; ++i) out_ += static_cast<char>(value >> (8 * i));
  }
  void string(std::string_view text) {
    integer(text.size(), 4);
    out_ += text;
  }
  void segment(const Segment& segment) {
    integer(segment.address, 8);
    integer(segment.nbytes, 8);
    integer(static_cast<std::uint64_t>(segment.type), 1);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what Writer wrote. After the first failure everything is 0 and empty; finish() tells. Confined to one thread.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::uint64_t integer(std::string_view field, int nbytes) {
    if (bytes_.size() < static_cast<std::size_t>(nbytes)) {
      fail(field);
      return 0;
    }
    std::uint64_t value = 0;
    for (int i = 0; i < nbytes; ++i)
      value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(bytes_[static_cast<std::size_t>(i)])) << (8 * i);
    bytes_.remove_prefix(static_cast<std::size_t>(nbytes));
    return value;
  }
  std::string string(std::string_view field) {
    const std::uint64_t size = integer(field, 4);
    if (size > bytes_.size()) {
      fail(field);
      return {};
    }
    std::string out(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return out;
  }
  bool flag(std::string_view field) {
    const std::uint64_t value = integer(field, 1);
    if (value > 1) fail(field);
    return value == 1;
  }
  // A count of elements that take `element_bytes` each, so that a lie cannot make us reserve much.
  std::uint64_t count(std::string_view field, std::size_t element_bytes) {
    const std::uint64_t value = integer(field, 4);
    if (value > bytes_.size() / element_bytes) {
      fail(field);
      return 0;
    }
    return value;
  }
  Status status(std::string_view field) {
    const auto value = static_cast<Status>(integer(field, 4));
    if (status_name(value) == "UNKNOWN") fail(field);
    return value;
  }
  // A range that is not empty and does not wrap.
  Piece piece(std::string_view field) {
    Piece out;
    out.address = integer(field, 8);
    out.nbytes = integer(field, 8);
    if (out.nbytes == 0 || !checked_add(out.address, out.nbytes)) fail(field);
    return out;
  }
  void fail(std::string_view field) {
    if (failed_.empty()) failed_ = field;
    bytes_ = {};
  }

  template <typename T>
  Result<Control> finish(T message) {
    if (failed_.empty() && !bytes_.empty()) failed_ = "trailing bytes";
    if (!failed_.empty())
      return Error(Status::kParamInvalid, fmt::format("a peer's control message is broken at: {}", failed_));
    return Control(std::move(message));
  }

 private:
  std::string_view bytes_;
  std::string failed_;
};

struct Encode {
  Writer& out;

  void operator()(const Hello& m) const {
    out.integer(m.tag, 8);
    out.string(m.reply_to);
  }
  void operator()(const HelloReply& m) const {
    out.integer(m.tag, 8);
    out.integer(static_cast<std::uint64_t>(m.status), 4);
    out.string(m.text);
    out.integer(m.staging ? 1 : 0, 1);
    out.integer(m.segments.size(), 4);
    for (const Segment& segment : m.segments) out.segment(segment);
  }
  void operator()(const StageRequest& m) const {
    out.integer(m.tag, 8);
    out.string(m.reply_to);
    out.integer(m.to_asker ? 1 : 0, 1);
    out.integer(m.buffer, 8);
    out.integer(static_cast<std::uint64_t>(m.timeout_ms), 8);
    out.integer(m.pieces.size(), 4);
    for (const Piece& piece : m.pieces) {
      out.integer(piece.address, 8);
      out.integer(piece.nbytes, 8);
    }
  }
  void operator()(const StageReply& m) const {
    out.integer(m.tag, 8);
    out.integer(static_cast<std::uint64_t>(m.status), 4);
    out.string(m.text);
  }
};

Result<Control> decode_hello_reply(Reader& in) {
  HelloReply m;
  m.tag = in.integer("tag", 8);
  m.status = in.status("status");
  m.text = in.string("text");
  m.staging = in.flag("staging");
  const std::uint64_t count = in.count("segments", 17);
  m.segments.reserve(count);
  SegmentSet seen;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Piece range = in.piece("segment");
    const std::uint64_t type = in.integer("segment type", 1);
    if (type > 1) in.fail("segment type");
    const Segment segment{range.address, range.nbytes, static_cast<MemType>(type & 1)};
    if (seen.overlaps(segment)) in.fail("segment overlap");
    seen.insert(segment);
    m.segments.push_back(segment);
  }
  return in.finish(std::move(m));
}

Result<Control> decode_stage_request(Reader& in) {
  StageRequest m;
  m.tag = in.integer("tag", 8);
  m.reply_to = in.string("reply_to");
  m.to_asker = in.flag("to_asker");
  m.buffer = in.integer("buffer", 8);
  m.timeout_ms = static_cast<std::int64_t>(in.integer("timeout_ms", 8));
  if (m.timeout_ms < 0) in.fail("timeout_ms");
  const std::uint64_t count = in.count("pieces", 16);
  m.pieces.reserve(count);
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    m.pieces.push_back(in.piece("piece"));
    const auto sum = checked_add(total, m.pieces.back().nbytes);
    if (!sum) in.fail("pieces");
    total = sum.value_or(0);
  }
  if (m.pieces.empty() || !checked_add(m.buffer, total)) in.fail("pieces");
  return in.finish(std::move(m));
}

}  // namespace

std::string encode(const Control& message) {
  Writer out;
  out.integer(message.index(), 1);
  std::visit(Encode{out}, message);
  return out.take();
}

Result<Control> decode(std::string_view bytes) {
  Reader in(bytes);
  switch (in.integer("type", 1)) {
    case 0: {
      Hello m;
      if (bytes.empty()) return in.finish(std::move(m));
      m.tag = in.integer("tag", 8);
      m.reply_to = in.string("reply_to");
      return in.finish(std::move(m));
    }
    case 1: return decode_hello_reply(in);
    case 2: return decode_stage_request(in);
    case 3: {
      StageReply m;
      m.tag = in.integer("tag", 8);
      m.status = in.status("status");
      m.text = in.string("text");
      return in.finish(std::move(m));
    }
    default: in.fail("type"); return in.finish(StageReply{});
  }
}

}  // namespace onesided::hixl_abi
