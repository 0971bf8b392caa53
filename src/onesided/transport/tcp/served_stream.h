// The owner's end of one data stream. The peer may lie, so each range is checked against this engine's own table
// just before its bytes move, and the registration is held only while they do: a peer that stops reading cannot keep
// memory registered, and memory that was deregistered is not read any more, even in the middle of a reply.
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

// Confined to the loop's thread, apart from construction.
class ServedStream : public std::enable_shared_from_this<ServedStream> {
 public:
  // `forget` runs once, when the stream has ended by itself or by close().
  ServedStream(std::shared_ptr<EventLoop> loop, RegionAccess& memory, std::shared_ptr<PeerChannel> channel, Fd socket,
               std::function<void(ServedStream&)> forget);

  const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  const PeerChannel& channel() const { return *channel_; }
  void start();
  void close();

 private:
  enum class State { kHead, kItems, kPayload, kReply };

  void on_ready();
  // True: go on. False: nothing can be done before the socket is ready again.
  Result<bool> advance();
  Result<bool> receive_more();
  Result<bool> take_head();
  Result<bool> take_items();
  bool acquire_all();
  void begin_read();
  void stage_read();
  void aim_reply();
  Result<bool> send_reply();
  void spoil(Status status);
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
  bool drained_ = false;          // the last read took all there was
  std::vector<std::uint8_t> in_;  // heads, items, and what little of a payload came with them
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;

  // The request being served.
  DataRequestHead head_;
  std::vector<DataItem> items_;
  std::vector<Status> results_;        // one an item
  std::vector<RegionHold> holds_;      // one an item while bytes move, else none
  std::vector<std::uint8_t> staging_;  // its payload, when it touches memory that the host cannot
  bool staged_ = false;
  std::uint64_t moved_ = 0;  // of the payload
  std::uint64_t payload_bytes_ = 0;
  std::vector<std::uint8_t> reply_;  // head and failures
  DataReplyTail tail_;
  std::vector<std::uint8_t> tail_bytes_;
  ByteRuns runs_;  // what is sent or received next
};

}  // namespace onesided::tcp
