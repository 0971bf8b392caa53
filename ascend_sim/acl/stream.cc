#include "ascend_sim/acl/stream.h"

#include <fmt/core.h>
#include <pthread.h>

#include "ascend_sim/acl/device.h"
#include "ascend_sim/acl/errors.h"
#include "ascend_sim/acl/fork.h"
#include "ascend_sim/faults/faults.h"

namespace onesided::sim {

int Stream::next_id() {
  static std::atomic<int> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

AclError Stream::enqueue(Work work) {
  if (const AclError sticky = device_.sticky_error()) return sticky;
  MutexLock lock(mutex_);
  if (closed_) return fail(kRtStreamContext, "work queued on stream {} after it was destroyed", id_);
  queue_.push_back(std::move(work));
  ++queued_;
  if (!running_) {
    running_ = true;
    mark_used();
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }
  work_or_close_.notify_one();
  return kAclOk;
}

void Stream::run() {
  ::pthread_setname_np(::pthread_self(), fmt::format("npu{}-stream{}", device_.logical(), id_).substr(0, 15).c_str());
  MutexLock lock(mutex_);
  while (true) {
    while (queue_.empty() && !closed_) work_or_close_.wait(lock);
    if (queue_.empty()) break;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    work_aborted_ = false;
    lock.unlock();
    faults().delay_work();
    if (const AclError code = work()) device_.poison(code, take_recent_error());
    work = nullptr;  // releases memory before the end of the work is reported
    lock.lock();
    ++finished_;
    progressed_.notify_all();
  }
  running_ = false;
}

AclError Stream::synchronize(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    const std::uint64_t target = queued_;
    while (finished_ < target) {
      if (!progressed_.wait(lock, deadline) && finished_ < target) {
        return fail(kRtStreamSyncTimeout, "stream {} did not finish in time", id_);
      }
    }
  }
  return device_.sticky_error();
}

bool Stream::idle() {
  MutexLock lock(mutex_);
  return finished_ == queued_;
}

void Stream::abort() {
  std::deque<Work> dropped;  // destroyed outside the lock: work may hold memory
  MutexLock lock(mutex_);
  // T0: work is taken, and asks a moment later whether it was aborted | T1: abort(). Both in one section with the
  // queue, so that work is either still in it or hears of the abort.
  work_aborted_ = true;
  dropped.swap(queue_);
  finished_ += dropped.size();
  progressed_.notify_all();
  lock.unlock();
}

void Stream::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  work_or_close_.notify_one();
}

}  // namespace onesided::sim
