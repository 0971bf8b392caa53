// A count of users on which a thread can wait, for regions, peers and engines. One use costs two atomic additions.
#pragma once

#include <atomic>
#include <cstdint>

#include "onesided/base/clock.h"
#include "onesided/base/futex.h"

namespace onesided {

// The number of users of an object. Internally synchronized. The object may be destroyed as soon as wait_idle() has
// returned true and no new user can enter: leave() does not access the count after its last change.
class UseCount {
 public:
  void enter() { word_.fetch_add(1, std::memory_order_seq_cst); }
  void leave() {
    if (word_.fetch_sub(1, std::memory_order_seq_cst) == (kWaiting | 1)) futex_wake_all(word_);
  }
  std::uint32_t users() const { return word_.load(std::memory_order_seq_cst) & ~kWaiting; }
  // Blocks until there are no users; false if the deadline passed first.
  bool wait_idle(Deadline deadline) {
    while (true) {
      std::uint32_t seen = word_.load(std::memory_order_seq_cst);
      if ((seen & ~kWaiting) == 0) {
        word_.compare_exchange_strong(seen, 0);
        return true;
      }
      if ((seen & kWaiting) == 0 && !word_.compare_exchange_strong(seen, seen | kWaiting)) continue;
      if (!futex_wait(word_, seen | kWaiting, deadline)) return users() == 0;
    }
  }

 private:
  static constexpr std::uint32_t kWaiting = 1U << 31;
  std::atomic<std::uint32_t> word_{0};
};

// One user of a UseCount, for a scope. Confined to one thread.
class UseScope {
 public:
  explicit UseScope(UseCount& uses) : uses_(uses) { uses_.enter(); }
  UseScope(const UseScope&) = delete;
  UseScope& operator=(const UseScope&) = delete;
  ~UseScope() { uses_.leave(); }

 private:
  UseCount& uses_;
};

}  // namespace onesided
