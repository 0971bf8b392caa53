// Why: the initiator's end of one data stream: requests out, replies in, bytes straight into and out of registered
// memory. Whatever happens to the stream, each request that it took is accounted for.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "onesided/base/event_loop.h"
#include "onesided/base/fd.h"
#include "onesided/base/mutex.h"
#include "onesided/base/private_fd.h"
#include "onesided/transport/tcp/batch_run.h"
#include "onesided/transport/tcp/socket_io.h"

namespace onesided::tcp {

// pump() from any thread; everything else on the loop's thread.
class ClientStream : public std::enable_shared_from_this<ClientStream> {
 public:
  // The link. Called under no lock of the stream's.
  class Source {
   public:
    virtual ~Source() = default;
    // The next request for a stream, or null. `small_only`: of small batches.
    virtual std::unique_ptr<Request> next_request(bool small_only) = 0;
    // A reply was handed to its run.
    virtual void request_done(const std::shared_ptr<BatchRun>& run) = 0;
    // The stream is closed; these were not answered. `fault`: it was the peer who broke the rules.
    virtual void stream_broke(ClientStream& stream, std::vector<std::unique_ptr<Request>> unanswered, const Error& why,
                              bool fault) = 0;
  };

  ClientStream(std::shared_ptr<EventLoop> loop, std::shared_ptr<Source> source, Fd socket, bool small_only);

  const std::shared_ptr<EventLoop>& loop() const { return loop_; }
  bool small_only() const { return small_only_; }
  // Sends what the window allows.
  void pump();

  void start();
  // The run was stopped: READs of it land nowhere from now on. `now`: nor may its WRITEs stay under way, and if there
  // are any the connection is aborted, so that the peer's kernel drops what it holds.
  void drop_run(const std::shared_ptr<BatchRun>& run, bool now);
  void close(const Error& why);

 private:
  enum class State { kHead, kFailures, kPayload, kTail };

  struct Sending {
    std::vector<std::uint8_t> head;
    ByteRuns runs;
  };

  Result<void> prepare(const Request& request) ONESIDED_REQUIRES(mutex_);
  Result<bool> send() ONESIDED_REQUIRES(mutex_);
  void arm_output(bool wanted);

  void on_ready(std::uint32_t events);
  Result<bool> receive();
  Result<bool> step();
  Result<bool> on_head();
  Result<bool> on_failures();
  void aim_payload();
  Result<bool> on_tail();
  void complete(DataReplyTail tail);
  void unload_staging(const DataReplyTail& tail);
  std::span<const std::uint8_t> buffered() const { return std::span(in_).subspan(in_begin_, in_end_ - in_begin_); }
  void broke(const Error& why, bool fault, bool abort);

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
  std::vector<std::uint8_t> write_staging_ ONESIDED_GUARDED_BY(mutex_);  // of a WRITE from memory the host cannot touch

  // Of the loop's thread.
  bool output_armed_ = false;
  State state_ = State::kHead;
  std::vector<std::uint8_t> in_;  // heads, tails, and what little of a payload came with them
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  Request* current_ = nullptr;  // the front of outstanding_
  std::uint32_t expected_failures_ = 0;
  std::uint64_t payload_bytes_ = 0;
  std::vector<DataFailure> failures_;
  ByteRuns payload_;
  ByteRuns into_;              // of one read
  std::uint64_t discard_ = 0;  // payload bytes that land nowhere
  std::vector<std::uint8_t> read_staging_;
  bool staged_ = false;
};

}  // namespace onesided::tcp
