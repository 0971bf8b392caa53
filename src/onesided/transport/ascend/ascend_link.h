// HIXL has neither completion events nor a way to call work back, and sees only memory registered before it
// connected. One thread per peer makes a queue link of that: it submits, asks in a backing-off poll, connects anew when
// either side has newer memory, and tears the connection down where a caller may wait no longer.
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
  // Connects HIXL; fails as that does. `client` and `book` outlive the link.
  static Result<std::unique_ptr<AscendLink>> create(HixlClient& client, SegmentBook& book, Fd stream,
                                                    Deadline deadline);
  // Ends all work (CANCELLED) and disconnects HIXL.
  ~AscendLink() override;

  void post(std::shared_ptr<const Batch> batch) override;
  void cancel(const Batch& batch, Error why) override;

 private:
  // A batch on its way. Confined to the link's thread.
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
  // Puts what was posted and cancelled since the last look into jobs_. False: the link is being destroyed.
  bool take_posted(bool may_sleep);
  bool expire();
  bool submit();
  Result<bool> submit_one(const std::shared_ptr<Job>& job);
  bool poll();
  bool retire();
  // Whether HIXL's connection knows all memory of the job's next request, on both sides.
  Result<bool> reaches(const Job& job) const;
  static void fail_moves(const Batch& batch, std::size_t first, std::size_t count, const Error& error);
  // HIXL says FAILED for a dozen causes; the peer is asked whether it still offers the regions.
  void explain_failure(const Request& request, const Error& said);
  void end(const std::shared_ptr<Job>& job, std::optional<Error> rest);
  void tear_down(const Error& why);

  HixlClient& client_;
  SegmentBook& book_;
  OfferStream stream_;              // of the link's thread, once that runs
  Offer offer_;                     // what HIXL's connection reaches; empty name: not connected
  std::uint64_t book_version_ = 0;  // of our own memory, when it connected
  std::deque<std::shared_ptr<Job>> jobs_;
  std::deque<Request> requests_;

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::shared_ptr<Job>> posted_ ONESIDED_GUARDED_BY(mutex_);
  std::vector<std::pair<std::shared_ptr<Job>, Error>> cancels_ ONESIDED_GUARDED_BY(mutex_);
  // From post() until just before finished(): a batch at the address of one that has ended is another batch.
  std::unordered_map<const Batch*, std::shared_ptr<Job>> live_ ONESIDED_GUARDED_BY(mutex_);
  bool stopping_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // started by create(), joined by the destructor
};

}  // namespace onesided::ascend
