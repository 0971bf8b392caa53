// The messages of a control connection, as plain values with one codec. The format is in docs/wire_format.md. The
// decoder is total: any byte string becomes a message or an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/wire/region_desc.h"

namespace onesided {

// Owner -> peer, after it was accepted on this host: attached descriptors are [region table memfd] and, if the table
// has a separate lease page, [lease memfd]. The peer uses lease slot `lease_slot`.
struct TableOffer {
  std::uint64_t table_bytes = 0;
  std::uint32_t lease_slot = 0;
  std::uint64_t lease_bytes = 0;  // 0: leases lie in the table's own file
  friend bool operator==(const TableOffer&, const TableOffer&) = default;
};

// Owner -> peer: changes of the region table. `epoch` grows by one with each message. `complete` is sent once, when the
// peer has the whole table. Over Unix sockets the descriptors of `file_ids` are attached, in that order.
struct RegionUpdate {
  std::uint64_t epoch = 0;
  bool complete = false;
  std::vector<RegionDesc> added;
  std::vector<RegionKey> dropped;
  std::vector<std::uint64_t> file_ids;
  friend bool operator==(const RegionUpdate&, const RegionUpdate&) = default;
};

// Peer -> owner: asks for all changes not yet sent. TableSynced follows them. If several requests are pending, the
// answer to the newest counts for all.
struct TableRequest {
  std::uint64_t tag = 0;
  friend bool operator==(const TableRequest&, const TableRequest&) = default;
};
struct TableSynced {
  std::uint64_t tag = 0;
  friend bool operator==(const TableSynced&, const TableSynced&) = default;
};

// A notification; `sequence` counts from 1 in each direction of a session. The acknowledgement says that it (and all
// before it) was queued for the receiver's get_notifies(), or the reason why not.
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

// Both directions: the sender closes this session intentionally, with the reason. No message follows. Session::close()
// sends it.
struct Bye {
  Status status = Status::kSuccess;
  std::string text;
  friend bool operator==(const Bye&, const Bye&) = default;
};

// Heartbeat over TCP; the session itself sends and consumes it.
struct Heartbeat {
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

using ControlMessage =
    std::variant<TableOffer, RegionUpdate, TableRequest, TableSynced, Notify, NotifyAck, Bye, Heartbeat>;

// Limits of a message. send() returns PARAM_INVALID beyond them, and the receiver enforces them.
inline constexpr std::uint64_t kMaxNotifyBytes = 16ULL << 20;     // name + message
inline constexpr std::uint64_t kMaxControlPayload = 32ULL << 20;  // one encoded message
inline constexpr std::size_t kMaxAttachedFds = 64;                // descriptors on one message

// The payload of one frame (type byte first), without the frame header.
std::vector<std::uint8_t> encode_control(const ControlMessage& message);
// PARAM_INVALID, with the field's name, for every input that encode_control() does not produce.
Result<ControlMessage> decode_control(std::span<const std::uint8_t> payload);
// "RegionUpdate", ...: for logs and errors.
std::string_view control_message_name(const ControlMessage& message);

}  // namespace onesided
