// A queue link over HIXL. HIXL has neither completion events nor cancellation, and reaches only memory that was
// registered before it connected. One thread per peer therefore submits requests, polls them with increasing pauses,
// reconnects when either side has newer memory, and closes the connection when a caller must not wait longer.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/transport/ascend/hixl_client.h"
#include "onesided/transport/ascend/offer.h"
#include "onesided/transport/ascend/segment_book.h"
#include "onesided/transport/transport.h"

namespace onesided::ascend {

// One peer over HIXL. Internally synchronized; all calls to HIXL about this peer come from its own thread.
class AscendLink final : public QueueLink {
 public:
  // Connects HIXL; returns its error. `client` and `book` must outlive the link.
  static Result<std::unique_ptr<AscendLink>> create(HixlClient& client, SegmentBook& book, Fd stream,
                                                    Deadline deadline);
  // Ends all work (CANCELLED) and disconnects HIXL.
  ~AscendLink() override;

  void post(std::shared_ptr<const Batch> batch) override;
  void cancel(const Batch& batch, Error why) override;

 private:
  // An unfinished batch. Confined to the link's thread.
  struct Job {
    std::shared_ptr<const Batch> batch;
    std::size_t next = 0;       // first move not yet submitted
    std::size_t in_flight = 0;  // requests
    std::optional<Error> cancelled;
  };
  // One request of HIXL's: moves [first, first + count) of a job.
  struct Request {
    void* handle = nullptr;
    std::shared_ptr<Job> job;
    std::size_t first = 0;
    std::size_t count = 0;
  };

  AscendLink(HixlClient& client, SegmentBook& book, Fd stream);
  Result<void> connect(Deadline deadline);
  void disconnect();

  void work();
  // Moves posted and cancelled batches into jobs_. False: the link is being destroyed.
  bool take_posted(bool may_sleep);
  bool expire();
  bool submit();
  Result<bool> submit_one(const std::shared_ptr<Job>& job);
  bool poll();
  bool retire();
  // True if HIXL's connection reaches all memory of the job's next request, on both sides.
  Result<bool> reaches(const Job& job) const;
  static void fail_moves(const Batch& batch, std::size_t first, std::size_t count, const Error& error);
  // HIXL returns FAILED for many causes, so the peer is asked whether it still offers the regions.
  void explain_failure(const Request& request, const Error& said);
  void end(const std::shared_ptr<Job>& job, std::optional<Error> rest);
  void tear_down(const Error& why);

  HixlClient& client_;
  SegmentBook& book_;
  OfferStream stream_;              // used on the link's thread, once that runs
  Offer offer_;                     // memory that HIXL's connection reaches; empty name: not connected
  std::uint64_t book_version_ = 0;  // of this engine's memory when HIXL connected
  std::deque<std::shared_ptr<Job>> jobs_;
  std::deque<Request> requests_;

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::shared_ptr<Job>> posted_ ONESIDED_GUARDED_BY(mutex_);
  std::vector<std::pair<std::shared_ptr<Job>, Error>> cancels_ ONESIDED_GUARDED_BY(mutex_);
  // From post() until just before finished(), because a later batch may have the same address.
  std::unordered_map<const Batch*, std::shared_ptr<Job>> live_ ONESIDED_GUARDED_BY(mutex_);
  bool stopping_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // started by create(), joined by the destructor
};

}  // namespace onesided::ascend
