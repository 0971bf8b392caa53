// The progress of one batch. It is cut into requests of bounded size, which use several streams, complete in any order
// and may fail in part; the batch's sink gets one exact result.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/transport/transport.h"
#include "onesided/wire/data.h"

namespace onesided::tcp {

class BatchRun;

// A part of one move. A value.
struct RequestPart {
  std::uint32_t move = 0;
  std::uint64_t local = 0;
  Device* device = nullptr;
  DataItem item;  // the peer's side; item.nbytes is the length of both
};

// The data of one round trip. Confined to the stream that carries it.
struct Request {
  std::shared_ptr<BatchRun> run;
  std::uint64_t id = 0;
  Op op = Op::kRead;
  std::vector<RequestPart> parts;
  std::uint64_t nbytes = 0;
  int broken_streams = 0;  // how many streams broke while they carried it
};

// Bytes in one request: large enough for a low overhead, small enough for streams and batches to take turns.
inline constexpr std::uint64_t kRequestBytes = kMiB;
// A batch of at most this many bytes is "small": it may use the stream that is reserved for small batches.
inline constexpr std::uint64_t kSmallBatchBytes = 64 * kKiB;

// One posted batch. Internally synchronized. The sink is called under no lock.
class BatchRun : public std::enable_shared_from_this<BatchRun> {
 public:
  BatchRun(std::shared_ptr<const Batch> batch, std::string peer_id);

  const Batch& batch() const { return *batch_; }
  bool small() const { return small_; }

  // The next request, or null if all are in flight or done. It counts as in flight until one of the next three calls.
  std::unique_ptr<Request> next();
  // Its reply has arrived: refused parts, and the first `tail.good_bytes` bytes of the other parts.
  void replied(const Request& request, std::span<const DataFailure> failures, const DataReplyTail& tail);
  // The request was not executed and may be tried again on another stream.
  void give_back(std::unique_ptr<Request> request);
  // The request will not be tried again; its memory is not accessed any more.
  void abandon(const Request& request, const std::optional<Error>& why = std::nullopt);

  // No more requests are made; finished() is called with `why` as soon as none is in flight. Only the first call has an
  // effect.
  void stop(const Error& why);
  bool stopped() const;
  bool ended() const;
  bool anything_to_send() const;

 private:
  bool cut(Request& request) ONESIDED_REQUIRES(mutex_);
  void report(const RequestPart& part, const Error& error);
  void leave();
  Error refusal(const RequestPart& part, Status status) const;

  const std::shared_ptr<const Batch> batch_;
  const std::string peer_id_;
  bool small_ = false;

  mutable Mutex mutex_;
  std::size_t move_ ONESIDED_GUARDED_BY(mutex_) = 0;      // the next move to be cut
  std::uint64_t offset_ ONESIDED_GUARDED_BY(mutex_) = 0;  // in it
  std::vector<bool> failed_ ONESIDED_GUARDED_BY(mutex_);  // moves that were reported as failed
  std::deque<std::unique_ptr<Request>> again_ ONESIDED_GUARDED_BY(mutex_);
  std::size_t under_way_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::optional<Error> stopped_ ONESIDED_GUARDED_BY(mutex_);
  bool left_ ONESIDED_GUARDED_BY(mutex_) = false;  // some bytes will neither arrive nor be reported as failed
  bool ended_ ONESIDED_GUARDED_BY(mutex_) = false;
};

}  // namespace onesided::tcp
