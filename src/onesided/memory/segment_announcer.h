// Notifies listeners of a pool's segments. Code that registers memory (the transfer engine, a user's library) must be
// called before the first tensor of a segment is allocated and before the segment is freed, and may call any function
// meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/device/device.h"

namespace onesided {

// A segment as reported to listeners. A value.
struct SegmentInfo {
  std::uint64_t address = 0;  // first aligned address; every block of the segment lies in [address, address + nbytes)
  std::uint64_t nbytes = 0;   // a multiple of the pool's alignment
  std::uint64_t raw_address = 0;
  std::uint64_t raw_bytes = 0;
  Stream stream;
  Device* device = nullptr;
};

// Called on the thread that grows or trims the pool, without a lock of the pool: it may free, subscribe, and allocate
// from the pool's free blocks (during on_segment_added() the pool does not grow again: RESOURCE_EXHAUSTED).
// on_segment_added() returns before any block of the segment is allocated, on_segment_dropped() before its memory is
// freed. Calls about different segments may run concurrently. None may throw.
class SegmentListener {
 public:
  virtual ~SegmentListener() = default;
  virtual void on_segment_added(const SegmentInfo& segment) = 0;
  // Called before on_segment_dropped(). False: the memory is still in use. The segment then remains, no block of it is
  // allocated any more, and the next trim asks again.
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
  // When it returns, the listener is not being called and is never called again, except by a call that is already on
  // the calling thread's stack. Unknown ids are ignored.
  void unsubscribe(SubscriptionId id);
  // The listeners to notify of an event that happens now.
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
