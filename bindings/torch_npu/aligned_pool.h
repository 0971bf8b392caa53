// A core pool together with torch_npu's data about it. torch_npu identifies a pool by id and device, counts its users,
// and attaches data to its blocks (a collective's work, a mark of unsafe memory, an export key); the core has none of
// these. The object exists as long as one of its blocks is in use.
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
  QueueDevice& device;                           // exists until the process ends
  const std::shared_ptr<NPUAllocator> upstream;  // null: the device's own memory
  const std::unique_ptr<Pool> pool;
  std::atomic<int> use_count{1};
  std::atomic<int> takers{0};  // threads that have chosen this pool but not yet got their block
  std::atomic<bool> use_on_oom{false};
  bool retired() const { return use_count.load() == 0; }

  // A block is freed: removes the data attached to it.
  void forget_marks(void* address);
  // The collective (HCCL work) that last used a block; null: none.
  void set_collective_work(void* address, void* work);
  void* collective_work(void* address);
  // After a memory error torch_npu's recovery marks blocks whose content must be restored before use.
  void mark_all_unsafe();
  void mark_safe(void* address);
  bool is_safe(void* address);
  // The key under which another process imports the segment, made once. Throws c10::Error.
  std::string export_key(const SegmentInfo& segment);
  void forget_export_key(std::uint64_t segment_address);

 private:
  std::atomic<bool> marked_{false};  // true once any member below was set
  std::mutex mutex_;
  std::set<std::uint64_t> unsafe_;
  std::map<std::uint64_t, void*> collective_work_;
  std::map<std::uint64_t, std::string> export_keys_;  // by segment address
};

using AlignedPoolPtr = std::shared_ptr<AlignedPool>;

// The choice of a pool for one allocation. While it exists the pool may be released but not removed. It is made while
// the entry that names the pool (in the routing, or the default) cannot be removed. Empty: no pool. Movable, confined
// to one thread.
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
