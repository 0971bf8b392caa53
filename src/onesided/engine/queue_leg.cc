#include "onesided/engine/queue_leg.h"

namespace onesided {

QueueLeg::QueueLeg(std::shared_ptr<Transfer> transfer, QueueLink& link, std::vector<Move> moves,
                   std::atomic<std::uint64_t>* moved)
    : transfer_(std::move(transfer)), link_(link), moves_(std::move(moves)), moved_(moved) {}

void QueueLeg::post() {
  auto batch = std::make_shared<Batch>();
  batch->op = transfer_->op();
  batch->moves = std::move(moves_);
  batch->deadline = transfer_->deadline();
  batch->sink = shared_from_this();
  {
    MutexLock lock(mutex_);
    batch_ = batch;
  }
  link_.post(std::move(batch));
}

void QueueLeg::stop(const Error& why) {
  MutexLock lock(mutex_);
  const auto batch = batch_;
  lock.unlock();
  if (batch) link_.cancel(*batch, why);
}

void QueueLeg::moved(std::size_t move, std::uint64_t nbytes) {
  MutexLock lock(mutex_);
  const auto batch = batch_;
  lock.unlock();
  ONESIDED_CHECK(batch && move < batch->moves.size(), "the link spoke of move {} after it had finished", move);
  transfer_->arrived(batch->moves[move], 0, nbytes);
  moved_->fetch_add(nbytes, std::memory_order_relaxed);
}

void QueueLeg::failed(std::size_t move, Error error) {
  MutexLock lock(mutex_);
  const auto batch = batch_;
  lock.unlock();
  ONESIDED_CHECK(batch && move < batch->moves.size(), "the link spoke of move {} after it had finished", move);
  transfer_->refused(batch->moves[move], 0, error);
}

void QueueLeg::finished(std::optional<Error> rest) {
  MutexLock lock(mutex_);
  const auto batch = std::move(batch_);
  batch_.reset();
  lock.unlock();
  ONESIDED_CHECK(batch, "the link finished a batch twice");
  if (rest) transfer_->left(*rest);
  transfer_->leg_ended();
}

}  // namespace onesided
