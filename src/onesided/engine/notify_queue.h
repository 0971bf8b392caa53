// The bounded queue of received notifications. A program that never fetches them must not exhaust memory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "onesided/base/clock.h"
#include "onesided/base/mutex.h"
#include "onesided/base/status.h"

namespace onesided {

struct Notification {
  std::string name;
  std::string message;
};

// Internally synchronized.
class NotifyQueue {
 public:
  static constexpr std::uint64_t kMaxBytes = 256ULL << 20;

  // RESOURCE_EXHAUSTED: the queue is full.
  Status push(std::string name, std::string message) {
    MutexLock lock(mutex_);
    const std::uint64_t nbytes = name.size() + message.size() + sizeof(Notification);
    if (nbytes_ + nbytes > kMaxBytes) return Status::kResourceExhausted;
    nbytes_ += nbytes;
    waiting_.push_back({std::move(name), std::move(message)});
    arrived_.notify_all();
    return Status::kSuccess;
  }
  // Blocks until the queue is not empty, or close(). False if the deadline passed first.
  bool wait(Deadline deadline) {
    MutexLock lock(mutex_);
    while (waiting_.empty() && !closed_)
      if (!arrived_.wait(lock, deadline) && waiting_.empty() && !closed_) return false;
    return true;
  }
  // From now on wait() does not block.
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    arrived_.notify_all();
  }
  // Removes and returns all notifications, oldest first. Never blocks.
  std::vector<Notification> drain() {
    MutexLock lock(mutex_);
    nbytes_ = 0;
    return std::exchange(waiting_, {});
  }

 private:
  Mutex mutex_;
  CondVar arrived_;
  bool closed_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::uint64_t nbytes_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::vector<Notification> waiting_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
