#include "onesided/engine/queue_leg.h"

namespace onesided {

class QueueLeg::Visit {
 public:
  explicit Visit(QueueLeg& leg) : leg_(leg) {
    MutexLock lock(leg_.mutex_);
    batch_ = leg_.batch_;
    if (batch_) ++leg_.visits_;
  }
  ~Visit() {
    if (!batch_) return;
    MutexLock lock(leg_.mutex_);
    const bool last = --leg_.visits_ == 0 && leg_.finished_;
    lock.unlock();
    if (last) leg_.transfer_->leg_ended();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  // Null: the link has finished the batch, or does not have it yet.
  const Batch* batch() const { return batch_.get(); }

 private:
  QueueLeg& leg_;
  std::shared_ptr<const Batch> batch_;
};

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
  const Visit visit(*this);
  if (visit.batch()) link_.cancel(*visit.batch(), why);
}

bool QueueLeg::run_piece() {
  const Visit visit(*this);
  return visit.batch() && link_.help(*visit.batch());
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
  if (rest) transfer_->left(*rest);
  MutexLock lock(mutex_);
  const auto batch = std::move(batch_);
  batch_.reset();
  finished_ = true;
  const bool last = visits_ == 0;
  lock.unlock();
  ONESIDED_CHECK(batch, "the link finished a batch twice");
  if (last) transfer_->leg_ended();
}

}  // namespace onesided
