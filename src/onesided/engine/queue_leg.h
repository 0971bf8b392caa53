// The part of a transfer that goes over a QueueLink: a batch that the link completes.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "onesided/engine/transfer.h"

namespace onesided {

// Internally synchronized.
class QueueLeg : public Leg, public BatchSink, public std::enable_shared_from_this<QueueLeg> {
 public:
  QueueLeg(std::shared_ptr<Transfer> transfer, QueueLink& link, std::vector<Move> moves,
           std::atomic<std::uint64_t>* moved);

  // Hands the batch to the link. Called once, before stop().
  void post();
  void stop(const Error& why) override;
  bool run_piece() override;

  void moved(std::size_t move, std::uint64_t nbytes) override;
  void failed(std::size_t move, Error error) override;
  void finished(std::optional<Error> rest) override;

 private:
  // A call into the link from a thread that holds only the transfer. The leg does not end, and the link is therefore
  // not destroyed, before the call has returned.
  class Visit;

  const std::shared_ptr<Transfer> transfer_;
  QueueLink& link_;
  std::vector<Move> moves_;  // until post()
  std::atomic<std::uint64_t>* const moved_;
  Mutex mutex_;
  std::shared_ptr<const Batch> batch_ ONESIDED_GUARDED_BY(mutex_);  // from post() to finished(): it holds this leg
  std::uint32_t visits_ ONESIDED_GUARDED_BY(mutex_) = 0;
  bool finished_ ONESIDED_GUARDED_BY(mutex_) = false;
};

}  // namespace onesided
