// Freed blocks that other streams may still use. Such a block may be reused only when these streams are done with it;
// the host does not wait for them unless memory is exhausted.
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

// Internally synchronized. Calls the device, so it must not be called with the pool's mutex held.
class PendingFrees {
 public:
  explicit PendingFrees(Device& device) : device_(device) {}
  ~PendingFrees();

  // Adds a kPending block. take_finished() or wait_all() returns it when all work queued on `streams` so far is done.
  // With `defer` no event is recorded yet, because the device must not be called now (a graph is being captured).
  void add(Block* block, std::vector<Stream> streams, bool defer);
  // Returns the finished blocks. Never blocks. Records deferred events.
  std::vector<Block*> take_finished();
  // Blocks until all are done and returns them.
  std::vector<Block*> wait_all();
  // Returns all blocks without checking their events, because the device that recorded them was reset.
  std::vector<Block*> abandon();
  // One load, for the fast path.
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
