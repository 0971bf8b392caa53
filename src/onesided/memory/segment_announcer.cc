#include "onesided/memory/segment_announcer.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace onesided {

// One subscription. Internally synchronized.
class SegmentAnnouncer::Slot {
 public:
  Slot(SubscriptionId id, std::shared_ptr<SegmentListener> listener) : id_(id), listener_(std::move(listener)) {}

  SubscriptionId id() const { return id_; }

  template <typename Call>
  void run(Call call) {
    {
      MutexLock lock(mutex_);
      if (closed_) return;
      callers_.push_back(std::this_thread::get_id());
    }
    const Leave leave{*this};
    call(*listener_);
  }

  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    // A listener may unsubscribe itself during its own call; that call is not waited for.
    while (static_cast<std::ptrdiff_t>(callers_.size()) !=
           std::count(callers_.begin(), callers_.end(), std::this_thread::get_id())) {
      changed_.wait(lock);
    }
  }

 private:
  // Needed also if a foreign callback throws; otherwise close() would block for ever.
  struct Leave {
    Slot& slot;
    ~Leave() {
      MutexLock lock(slot.mutex_);
      slot.callers_.erase(std::find(slot.callers_.begin(), slot.callers_.end(), std::this_thread::get_id()));
      slot.changed_.notify_all();
    }
  };

  const SubscriptionId id_;
  const std::shared_ptr<SegmentListener> listener_;
  Mutex mutex_;
  CondVar changed_;
  bool closed_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::vector<std::thread::id> callers_ ONESIDED_GUARDED_BY(mutex_);
};

SubscriptionId SegmentAnnouncer::subscribe(std::shared_ptr<SegmentListener> listener) {
  MutexLock lock(mutex_);
  const SubscriptionId id = next_id_++;
  slots_.push_back(std::make_shared<Slot>(id, std::move(listener)));
  return id;
}

void SegmentAnnouncer::unsubscribe(SubscriptionId id) {
  std::shared_ptr<Slot> slot;
  {
    MutexLock lock(mutex_);
    const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const auto& one) { return one->id() == id; });
    if (found == slots_.end()) return;
    slot = *found;
    slots_.erase(found);
  }
  slot->close();
}

SegmentAnnouncer::Listeners SegmentAnnouncer::listeners() {
  MutexLock lock(mutex_);
  return slots_;
}

SegmentAnnouncer::Listeners SegmentAnnouncer::listener(SubscriptionId id) {
  MutexLock lock(mutex_);
  Listeners found;
  for (const auto& slot : slots_) {
    if (slot->id() == id) found.push_back(slot);
  }
  return found;
}

void SegmentAnnouncer::added(const Listeners& listeners, const SegmentInfo& segment) {
  for (const auto& slot : listeners) slot->run([&](SegmentListener& one) { one.on_segment_added(segment); });
}

bool SegmentAnnouncer::let_go(const Listeners& listeners, const SegmentInfo& segment) {
  bool all = true;
  for (const auto& slot : listeners) slot->run([&](SegmentListener& one) { all = one.let_go(segment) && all; });
  return all;
}

void SegmentAnnouncer::dropped(const Listeners& listeners, const SegmentInfo& segment) {
  for (const auto& slot : listeners) slot->run([&](SegmentListener& one) { one.on_segment_dropped(segment); });
}

}  // namespace onesided
