// Decides which pool an allocation belongs to. torch_npu reports when a pool begins and ends to receive allocations,
// with a filter (this thread, this stream, all). The innermost matching pool is used, whether it is aligned or native.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "aligned_pool.h"

namespace onesided::torch_npu {

// Internally synchronized.
class Routing {
 public:
  using Filter = std::function<bool(aclrtStream)>;

  // A pool that receives allocations. A value.
  struct Entry {
    PoolId id;
    AlignedPoolPtr pool;  // null for a pool of the native allocator: it hides aligned pools further out
    Filter filter;
    bool captures;  // a graph capture lasts as long as the entry
    std::thread::id begun_by = std::this_thread::get_id();
  };

  void begin(c10::DeviceIndex device, Entry entry);
  // Ends the innermost entry with this id, this thread's own first. Whether it stood for a capture.
  bool end(c10::DeviceIndex device, PoolId id);

  // The pool for an allocation on the device and stream by this thread: null for a pool of the native allocator,
  // std::nullopt if the allocation belongs to no pool.
  std::optional<ChosenPool> lookup(c10::DeviceIndex device, aclrtStream stream);
  // True if no aligned pool receives allocations now. One load, on the path of every allocation.
  bool quiet() const { return aligned_.load(std::memory_order_relaxed) == 0; }

 private:
  std::atomic<int> aligned_{0};
  std::shared_mutex mutex_;
  std::map<c10::DeviceIndex, std::vector<Entry>> entries_;  // innermost last
};

}  // namespace onesided::torch_npu
