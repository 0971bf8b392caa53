// Three questions are asked of all aligned pools: who has this id, who owns this address, and is there any at all
// (asked on every allocation and answered by one load).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "aligned_pool.h"

namespace onesided::torch_npu {

// Internally synchronized. Knows a pool from add() until it is retired and empty.
class PoolDirectory {
 public:
  // Enters the pool, unless one with its id is there. The one that is there now.
  AlignedPoolPtr add(AlignedPoolPtr pool);
  AlignedPoolPtr find(PoolId id);
  // The pool whose segment contains the address, or null.
  AlignedPoolPtr owner_of(const void* address);
  // device -1: all of them.
  std::vector<AlignedPoolPtr> pools(int device = -1);
  // A retired pool without blocks gives its segments back and is forgotten; others are left alone.
  void bury_if_dead(const AlignedPoolPtr& pool);
  // Tries again with those whose last blocks were waiting for a stream, or whose segments could not go. One load when
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
      ranges_;  // by start; a segment is here from before its first block until after its last
};

}  // namespace onesided::torch_npu
