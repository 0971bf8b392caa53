// Torch_npu knows a pool by id, by device and by a count of users, and hangs things on its blocks (a collective's
// work, a mark of unsafe memory, an export key); the core knows none of these. One object ties them together and stays
// alive as long as anybody needs one of its blocks.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "interface.h"
#include "onesided/memory/pool.h"
#include "queue_device.h"

namespace onesided::torch_npu {

// An aligned pool of torch_npu. Internally synchronized.
class AlignedPool {
 public:
  AlignedPool(PoolId pool_id, c10::DeviceIndex index, QueueDevice& queue_device,
              std::shared_ptr<NPUAllocator> raw_memory, std::unique_ptr<Pool> core)
      : id(pool_id),
        device_index(index),
        device(queue_device),
        upstream(std::move(raw_memory)),
        pool(std::move(core)) {}

  const PoolId id;
  const c10::DeviceIndex device_index;
  QueueDevice& device;                           // lives until the process ends
  const std::shared_ptr<NPUAllocator> upstream;  // null: the device's own memory
  const std::unique_ptr<Pool> pool;
  std::atomic<int> use_count{1};
  std::atomic<int> takers{0};  // threads between the choice of this pool and their block
  std::atomic<bool> use_on_oom{false};
  bool retired() const { return use_count.load() == 0; }

  // A block of ours is freed: what hung on it goes.
  void forget_marks(void* address);
  // The collective (HCCL work) that a block was last used by; null: none.
  void set_collective_work(void* address, void* work);
  void* collective_work(void* address);
  // After a memory error torch_npu's recovery marks blocks that must be refreshed before they are trusted.
  void mark_all_unsafe();
  void mark_safe(void* address);
  bool is_safe(void* address);
  // The key under which another process imports the segment, made once. Throws c10::Error.
  std::string export_key(const SegmentInfo& segment);
  void forget_export_key(std::uint64_t segment_address);

 private:
  std::atomic<bool> marked_{false};  // anything below was ever set
  std::mutex mutex_;
  std::set<std::uint64_t> unsafe_;
  std::map<std::uint64_t, void*> collective_work_;
  std::map<std::uint64_t, std::string> export_keys_;  // by segment address
};

using AlignedPoolPtr = std::shared_ptr<AlignedPool>;

// The choice of a pool for one allocation: until it ends the pool is not buried, though it may be released. Made while
// what names the pool (an entry of the routing, a default) cannot go away. Empty: none. Movable, confined.
class ChosenPool {
 public:
  ChosenPool() = default;
  explicit ChosenPool(AlignedPoolPtr pool) : pool_(std::move(pool)) {
    if (pool_) pool_->takers.fetch_add(1);
  }
  ChosenPool(ChosenPool&&) noexcept = default;
  ChosenPool& operator=(ChosenPool&&) = delete;
  ~ChosenPool() {
    if (pool_) pool_->takers.fetch_sub(1);
  }
  explicit operator bool() const { return pool_ != nullptr; }
  const AlignedPoolPtr& operator*() const { return pool_; }
  AlignedPool* operator->() const { return pool_.get(); }

 private:
  AlignedPoolPtr pool_;
};

}  // namespace onesided::torch_npu
