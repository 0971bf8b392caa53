// The directory of all aligned pools: finds a pool by its id or by an address, and reports whether there is any pool at
// all (one load, on the path of every allocation).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "aligned_pool.h"

namespace onesided::torch_npu {

// Internally synchronized. Contains a pool from add() until it is retired and empty.
class PoolDirectory {
 public:
  // Adds the pool, if there is none with its id. Returns the pool with that id.
  AlignedPoolPtr add(AlignedPoolPtr pool);
  AlignedPoolPtr find(PoolId id);
  // The pool whose segment contains the address, or null.
  AlignedPoolPtr owner_of(const void* address);
  // The pools of a device; -1: of all devices.
  std::vector<AlignedPoolPtr> pools(int device = -1);
  // If the pool is retired and has no blocks, frees its segments and removes it; otherwise no effect.
  void bury_if_dead(const AlignedPoolPtr& pool);
  // Retries with pools whose last blocks were waiting for a stream, or whose segments could not be freed. One load if
  // there are none.
  void sweep() {
    if (unburied_.load(std::memory_order_relaxed)) bury_dead();
  }
  void bury_dead();

  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

 private:
  class Ranges;

  std::atomic<int> count_{0};
  std::atomic<bool> unburied_{false};
  std::shared_mutex mutex_;
  std::map<PoolId, AlignedPoolPtr> by_id_;
  struct Range {
    std::uint64_t end = 0;
    std::weak_ptr<AlignedPool> pool;
  };
  std::map<std::uint64_t, Range>
      ranges_;  // by start; contains a segment from before its first block until after its last
};

}  // namespace onesided::torch_npu
