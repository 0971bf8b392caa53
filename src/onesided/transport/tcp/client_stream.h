// The initiator's end of one data stream: it sends requests and receives replies, directly from and into registered
// memory. Each request that it took is reported, whatever happens to the stream.
//
// The thread that holds `reading_` receives replies: the loop's thread when epoll wakes it, or a thread that waits for
// one of them. While a waiting thread receives, the socket's input does not wake the loop, so a small READ wakes one
// thread instead of two.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "onesided/base/brief_look.h"
#include "onesided/base/event_loop.h"
#include "onesided/base/fd.h"
#include "onesided/base/mutex.h"
#include "onesided/base/private_fd.h"
#include "onesided/transport/tcp/batch_run.h"
#include "onesided/transport/tcp/socket_io.h"

namespace onesided::tcp {

// Any thread may call pump() and help(); everything else runs on the loop's thread.
class ClientStream : public std::enable_shared_from_this<ClientStream> {
 public:
  // The link. Called without a lock of the stream.
  class Source {
   public:
    virtual ~Source() = default;
    // The next request for a stream, or null. `small_only`: only of small batches.
    virtual std::unique_ptr<Request> next_request(bool small_only) = 0;
    // A reply was handed to its run.
    virtual void request_done(const std::shared_ptr<BatchRun>& run) = 0;
    // The stream is closed; these requests were not answered. `fault`: the peer violated the protocol.
    virtual void stream_broke(ClientStream& stream, std::vector<std::unique_ptr<Request>> unanswered, const Error& why,
                              bool fault) = 0;
  };

  ClientStream(std::shared_ptr<EventLoop> loop, std::shared_ptr<Source> source, Fd socket, bool small_only);

  const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  bool small_only() const { return small_only_; }
  // Sends requests as far as the window allows.
  void pump();
  // Receives on the calling thread, which waits for the run, until the run has ended or nothing has arrived for a short
  // time. False: nothing arrived, the run has no request on this stream, or another thread is receiving already.
  bool help(const BatchRun& run);

  void start();
  // The run was stopped: the data of its READs are discarded from now on. `now`: its WRITEs must end too; if there are
  // any, the connection is aborted, so that the peer's kernel drops its received data.
  void drop_run(const std::shared_ptr<BatchRun>& run, bool now);
  void close(const Error& why);

 private:
  enum class State { kHead, kFailures, kPayload, kTail };

  struct Sending {
    std::vector<std::uint8_t> head;
    ByteRuns runs;
  };

  // A complete reply; it is passed to its run without a lock.
  struct Answer {
    std::unique_ptr<Request> request;
    std::vector<DataFailure> failures;
    DataReplyTail tail;
  };
  struct Received {
    std::uint64_t nbytes = 0;
    bool drained = true;  // all arrived bytes were read
  };

  Result<void> prepare(const Request& request) ONESIDED_REQUIRES(mutex_);
  Result<bool> send() ONESIDED_REQUIRES(mutex_);
  void arm() ONESIDED_REQUIRES(mutex_);

  void on_ready(std::uint32_t events);
  bool receive_for(const BatchRun& run);
  Result<Received> await_more(const BatchRun& run);
  bool join_reading(const BatchRun& run);
  Result<Received> receive();
  Result<Received> receive_part() ONESIDED_REQUIRES(reading_);
  Result<bool> step() ONESIDED_REQUIRES(reading_);
  Result<bool> on_head() ONESIDED_REQUIRES(reading_);
  Result<bool> on_failures() ONESIDED_REQUIRES(reading_);
  void aim_payload() ONESIDED_REQUIRES(reading_);
  Result<bool> on_tail() ONESIDED_REQUIRES(reading_);
  void complete(DataReplyTail tail) ONESIDED_REQUIRES(reading_);
  void unload_staging(const DataReplyTail& tail) ONESIDED_REQUIRES(reading_);
  std::span<const std::uint8_t> buffered() const ONESIDED_REQUIRES(reading_) {
    return std::span(in_).subspan(in_begin_, in_end_ - in_begin_);
  }
  void post_broke(const Error& why);
  void on_connection_lost(const Error& why, bool fault, bool abort);

  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<Source> source_;
  const int socket_number_;
  const bool small_only_;

  Mutex mutex_;
  PrivateFd socket_ ONESIDED_GUARDED_BY(mutex_);  // invalid: closed
  std::optional<Sending> sending_ ONESIDED_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Request>> outstanding_ ONESIDED_GUARDED_BY(mutex_);  // the last one may be in sending_
  std::uint64_t outstanding_bytes_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_id_ ONESIDED_GUARDED_BY(mutex_) = 1;
  std::vector<std::uint8_t> write_staging_
      ONESIDED_GUARDED_BY(mutex_);  // of a WRITE from memory that the host cannot access

  // The events that the loop watches.
  bool watched_ ONESIDED_GUARDED_BY(mutex_) = false;
  bool blocked_ ONESIDED_GUARDED_BY(mutex_) = false;  // the socket accepts no more bytes
  bool helped_ ONESIDED_GUARDED_BY(mutex_) = false;   // a waiting thread receives
  BriefLook look_;                                    // of that thread
  std::uint32_t armed_ ONESIDED_GUARDED_BY(mutex_) = 0;

  // Held while bytes are received and put in place; taken before mutex_.
  Mutex reading_;
  bool open_ ONESIDED_GUARDED_BY(reading_) = true;
  State state_ ONESIDED_GUARDED_BY(reading_) = State::kHead;
  // Heads, tails, and the part of a payload that arrived with them.
  std::vector<std::uint8_t> in_ ONESIDED_GUARDED_BY(reading_);
  std::size_t in_begin_ ONESIDED_GUARDED_BY(reading_) = 0;
  std::size_t in_end_ ONESIDED_GUARDED_BY(reading_) = 0;
  Request* current_ ONESIDED_GUARDED_BY(reading_) = nullptr;  // the front of outstanding_
  std::uint32_t expected_failures_ ONESIDED_GUARDED_BY(reading_) = 0;
  std::uint64_t payload_bytes_ ONESIDED_GUARDED_BY(reading_) = 0;
  std::vector<DataFailure> failures_ ONESIDED_GUARDED_BY(reading_);
  ByteRuns payload_ ONESIDED_GUARDED_BY(reading_);
  ByteRuns into_ ONESIDED_GUARDED_BY(reading_);              // of one read
  std::uint64_t discard_ ONESIDED_GUARDED_BY(reading_) = 0;  // payload bytes to discard
  std::vector<std::uint8_t> read_staging_ ONESIDED_GUARDED_BY(reading_);
  bool staged_ ONESIDED_GUARDED_BY(reading_) = false;
  std::vector<Answer> answers_ ONESIDED_GUARDED_BY(reading_);  // of one read
};

}  // namespace onesided::tcp
