// Whoever registers memory (the transfer engine, a user's library) must hear of each segment before the first
// tensor in it and of its end before the memory goes back, and must be free to call anything meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/device/device.h"

namespace onesided {

// One segment as listeners see it. A value.
struct SegmentInfo {
  std::uint64_t address = 0;  // first aligned address; every block of the segment lies in [address, address + nbytes)
  std::uint64_t nbytes = 0;   // a multiple of the pool's alignment
  std::uint64_t raw_address = 0;
  std::uint64_t raw_bytes = 0;
  Stream stream;
  Device* device = nullptr;
};

// Called from whichever thread grows or trims the pool, with no lock of the pool held: it may free, subscribe, and
// allocate what the pool has free (within on_segment_added() the pool does not grow again: RESOURCE_EXHAUSTED). A
// segment's `added` returns before any block of it is handed out, its `dropped` before the memory goes back to its
// source; calls about different segments may run at the same time. None may throw.
class SegmentListener {
 public:
  virtual ~SegmentListener() = default;
  virtual void on_segment_added(const SegmentInfo& segment) = 0;
  // Asked before on_segment_dropped(). False, somebody still uses the memory: it stays, no block of it is handed out
  // any more, and the pool asks again when it is trimmed the next time.
  virtual bool let_go(const SegmentInfo&) { return true; }
  virtual void on_segment_dropped(const SegmentInfo& segment) = 0;
};

using SubscriptionId = std::uint64_t;

// The listeners of one pool. Internally synchronized.
class SegmentAnnouncer {
 public:
  class Slot;
  using Listeners = std::vector<std::shared_ptr<Slot>>;

  SubscriptionId subscribe(std::shared_ptr<SegmentListener> listener);
  // When it returns the listener is not being called and never will be again, except by the calling thread itself
  // further up its stack. Unknown ids are ignored.
  void unsubscribe(SubscriptionId id);
  // Who is to hear of something that happens now.
  Listeners listeners();
  Listeners listener(SubscriptionId id);

  static void added(const Listeners& listeners, const SegmentInfo& segment);
  static bool let_go(const Listeners& listeners, const SegmentInfo& segment);
  static void dropped(const Listeners& listeners, const SegmentInfo& segment);

 private:
  Mutex mutex_;
  SubscriptionId next_id_ ONESIDED_GUARDED_BY(mutex_) = 1;
  Listeners slots_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
