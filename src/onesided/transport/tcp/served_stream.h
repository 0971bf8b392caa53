// The owner's end of one data stream. The peer is not trusted: each range is checked against this engine's own table
// just before its bytes move, and the registration is held only while they move. A peer that stops reading therefore
// cannot keep memory registered, and deregistered memory is not read, not even in the middle of a reply.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "onesided/base/event_loop.h"
#include "onesided/base/fd.h"
#include "onesided/base/private_fd.h"
#include "onesided/transport/tcp/socket_io.h"
#include "onesided/transport/transport.h"
#include "onesided/wire/data.h"

namespace onesided::tcp {

// Confined to the loop's thread, except for construction.
class ServedStream : public std::enable_shared_from_this<ServedStream> {
 public:
  // `forget` is called once, when the stream has ended, by itself or by close().
  ServedStream(std::shared_ptr<EventLoop> loop, RegionAccess& memory, std::shared_ptr<PeerChannel> channel, Fd socket,
               std::function<void(ServedStream&)> forget);

  const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  const PeerChannel& channel() const { return *channel_; }
  void start();
  void close();

 private:
  enum class State { kHead, kItems, kPayload, kReply };

  void on_ready();
  // True: call again. False: nothing can be done before the socket is ready again.
  Result<bool> advance();
  Result<bool> receive_more();
  Result<bool> take_head();
  Result<bool> take_items();
  bool acquire_all();
  void begin_read();
  void stage_read();
  void aim_reply();
  Result<bool> send_reply();
  void fail_payload(Status status);
  void begin_write();
  void aim_payload();
  void give_up_item_under_way();
  Result<bool> receive_payload();
  void take_buffered_payload();
  void unload_staging();
  void begin_write_reply();
  std::vector<DataFailure> failures() const;
  std::span<const std::uint8_t> buffered() const { return std::span(in_).subspan(in_begin_, in_end_ - in_begin_); }
  void want(std::uint32_t events);

  const std::shared_ptr<EventLoop> loop_;
  RegionAccess& memory_;
  const std::shared_ptr<PeerChannel> channel_;
  PrivateFd socket_;
  std::function<void(ServedStream&)> forget_;

  State state_ = State::kHead;
  std::uint32_t wanted_ = 0;
  bool drained_ = false;          // the last read took all arrived bytes
  std::vector<std::uint8_t> in_;  // heads, items, and the part of a payload that arrived with them
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;

  // The request being served.
  DataRequestHead head_;
  std::vector<DataItem> items_;
  std::vector<Status> results_;        // one per item
  std::vector<RegionHold> holds_;      // one per item while bytes move, otherwise empty
  std::vector<std::uint8_t> staging_;  // its payload, if it is in memory that the host cannot access
  bool staged_ = false;
  std::uint64_t moved_ = 0;  // of the payload
  std::uint64_t payload_bytes_ = 0;
  std::vector<std::uint8_t> reply_;  // head and failures
  DataReplyTail tail_;
  std::vector<std::uint8_t> tail_bytes_;
  ByteRuns runs_;  // the next bytes to send or receive
};

}  // namespace onesided::tcp
