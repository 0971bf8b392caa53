// A block that other streams worked on may be reused only when they are done with it, and nobody may wait for that
// on the host unless memory has run out.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/device/device.h"
#include "onesided/memory/block.h"

namespace onesided {

// Blocks on their way back. Internally synchronized; calls the device, so never call it with the pool's mutex held.
class PendingFrees {
 public:
  explicit PendingFrees(Device& device) : device_(device) {}
  ~PendingFrees();

  // Takes a kPending block; it comes out of take_finished() or wait_all() when all work queued on `streams` so far is
  // done. With `defer` no event is recorded yet: the device must not be asked now (a graph is being captured).
  void add(Block* block, std::vector<Stream> streams, bool defer);
  // Never blocks. Records what was deferred.
  std::vector<Block*> take_finished();
  // Blocks until all are done.
  std::vector<Block*> wait_all();
  // All of them, without asking their events: the device that recorded these was reset.
  std::vector<Block*> abandon();
  // Cheap, for the fast path.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

 private:
  struct Waiting {
    Block* block = nullptr;
    std::size_t events_left = 0;
  };
  struct Mark {
    Event event;
    std::shared_ptr<Waiting> waiting;
  };
  struct Deferred {
    Block* block = nullptr;
    std::vector<Stream> streams;
  };

  void record(Block* block, const std::vector<Stream>& streams);
  void record_deferred();
  void finish(Mark& mark, std::vector<Block*>& finished);

  Device& device_;
  std::atomic<std::size_t> count_{0};
  Mutex mutex_;
  std::map<Stream, std::deque<Mark>> marks_ ONESIDED_GUARDED_BY(mutex_);  // in order within a stream
  std::vector<Deferred> deferred_ ONESIDED_GUARDED_BY(mutex_);
  std::vector<Block*> ready_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
