// Everything two engines say to each other on their control connection, as plain values with one codec. The format
// is docs/wire_format.md; the decoder is total: any byte string becomes a message or an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/wire/region_desc.h"

namespace onesided {

// Owner -> peer, after it was accepted on this host: attached descriptors are [region table memfd] and, when the table
// has a separate lease page, [lease memfd]. The peer uses lease slot `lease_slot`.
struct TableOffer {
  std::uint64_t table_bytes = 0;
  std::uint32_t lease_slot = 0;
  std::uint64_t lease_bytes = 0;  // 0: leases lie in the table's own file
  friend bool operator==(const TableOffer&, const TableOffer&) = default;
};

// Owner -> peer: what changed in the region table. `epoch` grows by one with each message; with `complete`, which comes
// once, the peer knows all there is. Over Unix sockets the descriptors of `file_ids` are attached, in that order.
struct RegionUpdate {
  std::uint64_t epoch = 0;
  bool complete = false;
  std::vector<RegionDesc> added;
  std::vector<RegionKey> dropped;
  std::vector<std::uint64_t> file_ids;
  friend bool operator==(const RegionUpdate&, const RegionUpdate&) = default;
};

// Peer -> owner: is there anything that I was not told? TableSynced comes after it. Of several requests that wait, the
// newest is answered for all.
struct TableRequest {
  std::uint64_t tag = 0;
  friend bool operator==(const TableRequest&, const TableRequest&) = default;
};
struct TableSynced {
  std::uint64_t tag = 0;
  friend bool operator==(const TableSynced&, const TableSynced&) = default;
};

// A notification; `sequence` counts from 1 in each direction of a session. The ack says that it (and all before it) was
// queued for the receiver's get_notifies(), or why not.
struct Notify {
  std::uint64_t sequence = 0;
  std::string name;
  std::string message;
  friend bool operator==(const Notify&, const Notify&) = default;
};
struct NotifyAck {
  std::uint64_t sequence = 0;
  Status status = Status::kSuccess;
  friend bool operator==(const NotifyAck&, const NotifyAck&) = default;
};

// Both ways: I close this session on purpose, and why. Nothing follows. Session::close() sends it.
struct Bye {
  Status status = Status::kSuccess;
  std::string text;
  friend bool operator==(const Bye&, const Bye&) = default;
};

// Sign of life over TCP; the session itself sends and swallows it.
struct Heartbeat {
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

using ControlMessage =
    std::variant<TableOffer, RegionUpdate, TableRequest, TableSynced, Notify, NotifyAck, Bye, Heartbeat>;

// Limits a sender must keep (send() answers PARAM_INVALID beyond them) and a receiver enforces.
inline constexpr std::uint64_t kMaxNotifyBytes = 16ULL << 20;     // name + message
inline constexpr std::uint64_t kMaxControlPayload = 32ULL << 20;  // one encoded message
inline constexpr std::size_t kMaxAttachedFds = 64;                // descriptors on one message

// The payload of one frame (type byte first), without the frame header.
std::vector<std::uint8_t> encode_control(const ControlMessage& message);
// PARAM_INVALID, naming the field, for anything that encode_control() would not have written.
Result<ControlMessage> decode_control(std::span<const std::uint8_t> payload);
// "RegionUpdate", ...: for logs and errors.
std::string_view control_message_name(const ControlMessage& message);

}  // namespace onesided
