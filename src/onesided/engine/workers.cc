#include "onesided/engine/workers.h"

#include <fmt/format.h>
#include <pthread.h>

#include <system_error>

namespace onesided {

Result<std::unique_ptr<Workers>> Workers::create(std::uint32_t count) {
  std::unique_ptr<Workers> workers(new Workers(count));
  try {
    for (std::uint32_t i = 0; i < count; ++i) {
      workers->threads_.emplace_back([raw = workers.get()] { raw->run(); });
      ::pthread_setname_np(workers->threads_.back().native_handle(), "onesided-copy");
    }
  } catch (const std::system_error& failure) {
    return Error(Status::kResourceExhausted, fmt::format("worker_threads={}: only {} threads could be created ({})",
                                                         count, workers->threads_.size(), failure.what()));
  }
  return workers;
}

void Workers::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::add(std::shared_ptr<CopyLeg> leg) {
  {
    MutexLock lock(mutex_);
    push(std::move(leg));
  }
  wake_.notify_one();
}

void Workers::push(std::shared_ptr<CopyLeg> leg) {
  const auto lane = lanes_.find(leg->lane());
  if (lane != lanes_.end()) {
    lane->second->second.push_back(std::move(leg));
    return;
  }
  const void* key = leg->lane();
  turns_.emplace_back(key, Lane());
  turns_.back().second.push_back(std::move(leg));
  lanes_[key] = std::prev(turns_.end());
}

std::shared_ptr<CopyLeg> Workers::pop() {
  auto& lane = turns_.front().second;
  auto leg = std::move(lane.front());
  lane.pop_front();
  if (lane.empty()) {
    lanes_.erase(turns_.front().first);
    turns_.pop_front();
  } else {
    turns_.splice(turns_.end(), turns_, turns_.begin());
  }
  return leg;
}

void Workers::run() {
  MutexLock lock(mutex_);
  while (true) {
    while (turns_.empty() && !stopping_) wake_.wait(lock);
    if (stopping_) return;
    auto leg = pop();
    // Queued again before its piece runs, so that other workers can take its next piece. A leg whose last piece was
    // taken meanwhile is found empty and dropped.
    if (leg->has_more()) {
      push(leg);
      if (count_ > 1) wake_.notify_one();
    }
    lock.unlock();
    leg->run_piece();
    leg.reset();
    lock.lock();
  }
}

}  // namespace onesided
