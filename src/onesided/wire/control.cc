#include "onesided/wire/control.h"

#include <fmt/core.h>

#include "onesided/base/align.h"
#include "onesided/wire/bytes.h"

namespace onesided {
namespace {

// The type byte of a message is its index in ControlMessage plus one. An index is never reused; new types are added at
// the end.
constexpr std::string_view kNames[] = {"TableOffer", "RegionUpdate", "TableRequest", "TableSynced",
                                       "Notify",     "NotifyAck",    "Bye",          "Heartbeat"};
static_assert(std::size(kNames) == std::variant_size_v<ControlMessage>);

constexpr std::size_t kMaxByeText = 4096;
constexpr std::size_t kFilePieceBytes = 4 * 8;
constexpr std::size_t kRegionKeyBytes = 8;
constexpr std::size_t kRegionDescMinBytes = kRegionKeyBytes + 8 + 8 + 1 + 4;

struct Writer {
  ByteWriter out;

  void key(const RegionKey& key) {
    out.u32(key.index);
    out.u32(key.generation);
  }
  void ids(const std::vector<std::uint64_t>& ids) {
    out.u32(static_cast<std::uint32_t>(ids.size()));
    for (const auto id : ids) out.u64(id);
  }
  void region(const RegionDesc& region) {
    key(region.key);
    out.u64(region.address);
    out.u64(region.nbytes);
    out.u8(static_cast<std::uint8_t>((region.device ? 1 : 0) | (region.host_accessible ? 2 : 0)));
    out.u32(static_cast<std::uint32_t>(region.pieces.size()));
    for (const auto& piece : region.pieces) {
      out.u64(piece.file_id);
      out.u64(piece.file_offset);
      out.u64(piece.region_offset);
      out.u64(piece.nbytes);
    }
  }

  void operator()(const TableOffer& m) {
    out.u64(m.table_bytes);
    out.u32(m.lease_slot);
    out.u64(m.lease_bytes);
  }
  void operator()(const RegionUpdate& m) {
    out.u64(m.epoch);
    out.u8(m.complete);
    out.u32(static_cast<std::uint32_t>(m.added.size()));
    for (const auto& desc : m.added) region(desc);
    out.u32(static_cast<std::uint32_t>(m.dropped.size()));
    for (const auto& dropped : m.dropped) key(dropped);
    ids(m.file_ids);
  }
  void operator()(const TableRequest& m) { out.u64(m.tag); }
  void operator()(const TableSynced& m) { out.u64(m.tag); }
  void operator()(const Notify& m) {
    out.u64(m.sequence);
    out.string(m.name);
    out.string(m.message);
  }
  void operator()(const NotifyAck& m) {
    out.u64(m.sequence);
    out.u32(static_cast<std::uint32_t>(m.status));
  }
  void operator()(const Bye& m) {
    out.u32(static_cast<std::uint32_t>(m.status));
    out.string(std::string_view(m.text).substr(0, kMaxByeText));
  }
  void operator()(const Heartbeat&) {}
};

struct Reader {
  ByteReader in;

  RegionKey key() {
    RegionKey key;
    key.index = in.u32("region index");
    key.generation = in.u32("region generation");
    if (key.generation == 0) in.fail("region generation");
    return key;
  }
  std::vector<std::uint64_t> ids(const char* what, std::size_t max = SIZE_MAX) {
    const auto count = in.count(8, what);
    if (count > max) in.fail(what);
    std::vector<std::uint64_t> ids;
    ids.reserve(in.failed() ? 0 : count);
    for (std::size_t i = 0; i < count && !in.failed(); ++i) ids.push_back(in.u64(what));
    return ids;
  }
  Status status() {
    const auto status = static_cast<Status>(in.u32("status"));
    if (status_name(status) == "UNKNOWN") in.fail("status");
    return status;
  }
  RegionDesc region() {
    RegionDesc desc;
    desc.key = key();
    desc.address = in.u64("region address");
    desc.nbytes = in.u64("region length");
    if (desc.nbytes == 0 || !checked_add(desc.address, desc.nbytes)) in.fail("region length");
    const auto flags = in.u8("region flags");
    if (flags > 3) in.fail("region flags");
    desc.device = (flags & 1) != 0;
    desc.host_accessible = (flags & 2) != 0;
    const auto count = in.count(kFilePieceBytes, "file pieces");
    desc.pieces.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      FilePiece piece{in.u64("file id"), in.u64("file offset"), in.u64("region offset"), in.u64("piece length")};
      const bool inside = range_within(piece.region_offset, piece.nbytes, 0, desc.nbytes);
      if (piece.nbytes == 0 || !inside || !checked_add(piece.file_offset, piece.nbytes)) in.fail("piece length");
      desc.pieces.push_back(piece);
    }
    return desc;
  }

  void operator()(TableOffer& m) {
    m.table_bytes = in.u64("table_bytes");
    m.lease_slot = in.u32("lease_slot");
    m.lease_bytes = in.u64("lease_bytes");
  }
  void operator()(RegionUpdate& m) {
    m.epoch = in.u64("epoch");
    m.complete = in.boolean("complete");
    const auto added = in.count(kRegionDescMinBytes, "added");
    m.added.reserve(added);
    for (std::size_t i = 0; i < added && !in.failed(); ++i) m.added.push_back(region());
    const auto dropped = in.count(kRegionKeyBytes, "dropped");
    m.dropped.reserve(dropped);
    for (std::size_t i = 0; i < dropped && !in.failed(); ++i) m.dropped.push_back(key());
    m.file_ids = ids("file_ids", kMaxAttachedFds);
  }
  void operator()(TableRequest& m) { m.tag = in.u64("tag"); }
  void operator()(TableSynced& m) { m.tag = in.u64("tag"); }
  void operator()(Notify& m) {
    m.sequence = in.u64("sequence");
    m.name = in.string(kMaxNotifyBytes, "name");
    m.message = in.string(kMaxNotifyBytes - m.name.size(), "message");
  }
  void operator()(NotifyAck& m) {
    m.sequence = in.u64("sequence");
    m.status = status();
  }
  void operator()(Bye& m) {
    m.status = status();
    m.text = in.string(kMaxByeText, "text");
  }
  void operator()(Heartbeat&) {}
};

template <std::size_t I = 0>
std::optional<ControlMessage> message_of_type(std::size_t index) {
  if constexpr (I < std::variant_size_v<ControlMessage>) {
    if (index == I) return ControlMessage(std::in_place_index<I>);
    return message_of_type<I + 1>(index);
  } else {
    return std::nullopt;
  }
}

}  // namespace

std::string_view control_message_name(const ControlMessage& message) { return kNames[message.index()]; }

std::vector<std::uint8_t> encode_control(const ControlMessage& message) {
  Writer writer;
  writer.out.u8(static_cast<std::uint8_t>(message.index() + 1));
  std::visit(writer, message);
  return writer.out.take();
}

Result<ControlMessage> decode_control(std::span<const std::uint8_t> payload) {
  Reader reader{ByteReader(payload)};
  const std::size_t type = reader.in.u8("type");
  auto message = message_of_type(type - 1);
  if (!message) return Error(Status::kParamInvalid, fmt::format("control message: unknown type {}", type));
  std::visit(reader, *message);
  const auto name = control_message_name(*message);
  ONESIDED_TRY(reader.in.finish(name.data()));
  return std::move(*message);
}

}  // namespace onesided
