// Worker threads for large and asynchronous copies. They are scheduled fairly, one piece at a time: first between
// peers, then between the transfers of one peer. A thread without work sleeps.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/engine/copy_leg.h"

namespace onesided {

// Internally synchronized.
class Workers {
 public:
  // RESOURCE_EXHAUSTED: the system cannot create this many threads.
  static Result<std::unique_ptr<Workers>> create(std::uint32_t count);
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void add(std::shared_ptr<CopyLeg> leg);
  std::uint32_t size() const { return count_; }
  // Ends the threads after their current pieces. Legs that are still queued must be stopped by the caller. Idempotent;
  // must be called by one thread.
  void stop();

 private:
  using Lane = std::deque<std::shared_ptr<CopyLeg>>;
  explicit Workers(std::uint32_t count) : count_(count) {}
  void run();
  void push(std::shared_ptr<CopyLeg> leg) ONESIDED_REQUIRES(mutex_);
  std::shared_ptr<CopyLeg> pop() ONESIDED_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::list<std::pair<const void*, Lane>> turns_
      ONESIDED_GUARDED_BY(mutex_);  // lanes with work, in the order of their turns
  std::unordered_map<const void*, std::list<std::pair<const void*, Lane>>::iterator> lanes_ ONESIDED_GUARDED_BY(mutex_);
  const std::uint32_t count_;
  std::vector<std::thread> threads_;  // used by create() and stop() only
};

}  // namespace onesided
