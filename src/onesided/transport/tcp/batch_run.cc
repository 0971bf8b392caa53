#include "onesided/transport/tcp/batch_run.h"

#include <fmt/core.h>

#include <algorithm>

namespace onesided::tcp {
namespace {

// Limit of parts per request: together with head and tail they fit into one gather operation of the kernel, also on the
// owner's side.
static_assert(kMaxDataItems + 8 <= 1024);
static_assert(kRequestBytes <= kMaxDataPayload);

std::uint64_t bytes_of(const Batch& batch) {
  std::uint64_t sum = 0;
  for (const auto& move : batch.moves) {
    sum += move.nbytes;
    if (sum > kSmallBatchBytes) break;
  }
  return sum;
}

}  // namespace

BatchRun::BatchRun(std::shared_ptr<const Batch> batch, std::string peer_id)
    : batch_(std::move(batch)),
      peer_id_(std::move(peer_id)),
      small_(bytes_of(*batch_) <= kSmallBatchBytes),
      failed_(batch_->moves.size(), false) {}

std::unique_ptr<Request> BatchRun::next() {
  MutexLock lock(mutex_);
  if (stopped_) return nullptr;
  std::unique_ptr<Request> request;
  if (!again_.empty()) {
    request = std::move(again_.front());
    again_.pop_front();
  } else {
    request = std::make_unique<Request>();
    request->op = batch_->op;
    if (!cut(*request)) return nullptr;
    request->run = shared_from_this();
  }
  ++under_way_;
  return request;
}

bool BatchRun::cut(Request& request) {
  while (move_ < batch_->moves.size() && request.parts.size() < kMaxDataItems && request.nbytes < kRequestBytes) {
    const auto& move = batch_->moves[move_];
    if (!failed_[move_]) {
      RequestPart part;
      part.move = static_cast<std::uint32_t>(move_);
      part.local = move.local + offset_;
      part.device = move.device;
      part.item.key = move.region;
      part.item.address = move.remote + offset_;
      part.item.nbytes = std::min(move.nbytes - offset_, kRequestBytes - request.nbytes);
      offset_ += part.item.nbytes;
      request.nbytes += part.item.nbytes;
      request.parts.push_back(part);
      if (offset_ < move.nbytes) continue;
    }
    ++move_;
    offset_ = 0;
  }
  return !request.parts.empty();
}

void BatchRun::replied(const Request& request, std::span<const DataFailure> failures, const DataReplyTail& tail) {
  std::uint64_t place = 0;
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const auto& part = request.parts[i];
    if (!failures.empty() && failures.front().item == i) {
      report(part, refusal(part, failures.front().status));
      failures = failures.subspan(1);
      continue;
    }
    place += part.item.nbytes;
    if (place > tail.good_bytes) {
      report(part, refusal(part, tail.status));
      continue;
    }
    bool failed = false;
    {
      MutexLock lock(mutex_);
      failed = failed_[part.move];
    }
    if (!failed) batch_->sink->moved(part.move, part.item.nbytes);
  }
  leave();
}

void BatchRun::give_back(std::unique_ptr<Request> request) {
  {
    MutexLock lock(mutex_);
    if (!stopped_) {
      again_.push_back(std::move(request));
      --under_way_;
      return;
    }
    left_ = true;
  }
  leave();
}

void BatchRun::abandon(const Request& request, const std::optional<Error>& why) {
  if (why) {
    for (const auto& part : request.parts) report(part, *why);
  } else {
    MutexLock lock(mutex_);
    left_ = true;
  }
  leave();
}

void BatchRun::report(const RequestPart& part, const Error& error) {
  {
    MutexLock lock(mutex_);
    if (failed_[part.move]) return;
    failed_[part.move] = true;
  }
  batch_->sink->failed(part.move, error);
}

// Called last, after all reports of the request: the call that decrements the count to zero ends the batch.
void BatchRun::leave() {
  std::optional<Error> rest;
  {
    MutexLock lock(mutex_);
    --under_way_;
    // The rest of a failed move is not requested.
    while (move_ < failed_.size() && failed_[move_]) {
      ++move_;
      offset_ = 0;
    }
    const bool all = again_.empty() && move_ == batch_->moves.size();
    if (under_way_ > 0 || ended_ || !(all || stopped_)) return;
    ended_ = true;
    // If everything has been answered, a late stop has no effect.
    if (!all || left_) rest = stopped_;
  }
  batch_->sink->finished(std::move(rest));
}

void BatchRun::stop(const Error& why) {
  {
    MutexLock lock(mutex_);
    if (stopped_ || ended_) return;
    stopped_ = why;
    left_ = left_ || !again_.empty();
    again_.clear();
    if (under_way_ > 0) return;
    ended_ = true;
  }
  batch_->sink->finished(why);
}

bool BatchRun::stopped() const {
  MutexLock lock(mutex_);
  return stopped_.has_value();
}

bool BatchRun::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

bool BatchRun::anything_to_send() const {
  MutexLock lock(mutex_);
  return !stopped_ && (!again_.empty() || move_ < batch_->moves.size());
}

Error BatchRun::refusal(const RequestPart& part, Status status) const {
  const auto range = fmt::format("[{:#x}, +{}) of {}", part.item.address, part.item.nbytes, peer_id_);
  switch (status) {
    case Status::kStale:
      return Error(status, fmt::format("region {} (generation {}), which held {}, was deregistered or replaced",
                                       part.item.key.index, part.item.key.generation, range));
    case Status::kParamInvalid:
      return Error(status, fmt::format("{} refused the access: {} is out of range", peer_id_, range));
    case Status::kUnsupported:
      return Error(status, fmt::format("{} refused the access: {} is mapped read-only there", peer_id_, range));
    default: return Error(status, fmt::format("{} could not serve {}: {}", peer_id_, range, status_name(status)));
  }
}

}  // namespace onesided::tcp
