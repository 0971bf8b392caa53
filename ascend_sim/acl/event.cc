#include "ascend_sim/acl/event.h"

#include <algorithm>

#include "ascend_sim/acl/trace.h"
#include "ascend_sim/faults/faults.h"

namespace onesided::sim {

// A mark in a stream. It counts as passed when its work is destroyed: after it ran, and also if the stream was aborted
// or refused it, because then a wait for it must end.
class Event::Mark {
 public:
  Mark(std::shared_ptr<Event> event, std::uint64_t number) : event_(std::move(event)), number_(number) {}
  ~Mark() {
    if (!lost_) event_->pass(number_);
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void reached() { lost_ = faults().lose_completion(); }

 private:
  std::shared_ptr<Event> event_;
  std::uint64_t number_;
  bool lost_ = false;
};

AclError Event::record(Stream& stream) {
  std::uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    number = ++recorded_;
  }
  return stream.enqueue([mark = std::make_shared<Mark>(shared_from_this(), number)] {
    mark->reached();
    return kAclOk;
  });
}

void Event::pass(std::uint64_t mark) {
  MutexLock lock(mutex_);
  passed_ = std::max(passed_, mark);
  passed_at_ns_ = trace_now_ns();
  passed_mark_.notify_all();
}

AclError Event::block(Stream& stream) {
  std::uint64_t mark = 0;
  {
    MutexLock lock(mutex_);
    mark = recorded_;
    if (passed_ >= mark) return kAclOk;
  }
  // The stream outlives its work.
  return stream.enqueue([self = shared_from_this(), &stream, mark] {
    self->hold(stream, mark);
    return kAclOk;
  });
}

void Event::hold(const Stream& stream, std::uint64_t mark) {
  // A mark may never be passed (a seeded fault, a stream without a worker): an abort of the waiting stream, which has
  // no reference to this event, must still end the wait.
  constexpr int kLookForAbortsEveryMs = 20;
  while (!wait_for(mark, Deadline::after_ms(kLookForAbortsEveryMs)) && !stream.work_aborted()) {
  }
}

bool Event::complete() {
  MutexLock lock(mutex_);
  return passed_ >= recorded_;
}

bool Event::wait(Deadline deadline) {
  std::uint64_t mark = 0;
  {
    MutexLock lock(mutex_);
    mark = recorded_;
  }
  return wait_for(mark, deadline);
}

bool Event::wait_for(std::uint64_t mark, Deadline deadline) {
  MutexLock lock(mutex_);
  while (passed_ < mark) {
    if (!passed_mark_.wait(lock, deadline) && passed_ < mark) return false;
  }
  return true;
}

void Event::reset() {
  MutexLock lock(mutex_);
  passed_ = recorded_;
  passed_at_ns_ = 0;
  passed_mark_.notify_all();
}

std::uint64_t Event::timestamp_ns() {
  MutexLock lock(mutex_);
  return passed_ >= recorded_ ? passed_at_ns_ : 0;
}

}  // namespace onesided::sim
