// Calls on the native allocator that not every torch_npu has (the table is in interface.h):
// block_handles(native()).getBlockPtr(data) is the native allocator's own function where there is one. Elsewhere it is
// one of these, which answers what is true of such a version, or says what is missing.
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "interface.h"

namespace onesided::torch_npu {

[[noreturn]] inline void refuse_older(std::string_view function) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "onesided: the allocator of this torch_npu has no ", function,
                              "; which versions have it is in docs/versions.md");
}

struct NoBlockHandles {
  [[noreturn]] void eraseStreamWithBlockPtr(void*, c10_npu::NPUStream, void*) { refuse_older("block handles"); }
  [[noreturn]] void* getBlockPtr(const c10::DataPtr&) { refuse_older("block handles"); }
  [[noreturn]] void recordHcclWorkForBlock(void*, void*) { refuse_older("block handles"); }
};

struct NoMemoryFraction {
  double getMemoryFraction(int) { return 1.0; }  // what was set before us cannot be asked
  bool hasCapturesUnderway(c10::DeviceIndex) { return false; }
};

struct NoCountedPools {
  [[noreturn]] void emptyCache(PoolId) { refuse_older("emptyCache of one pool"); }
  [[noreturn]] void createOrIncrefPool(c10::DeviceIndex, PoolId, std::shared_ptr<NPUAllocator>) {
    refuse_older("createOrIncrefPool");
  }
  [[noreturn]] void attachAllocatorTraceTracker(TraceTracker) { refuse_older("attachAllocatorTraceTracker"); }
};

template <typename Native>
struct NoDeviceAllocator {
  Native& native;

  [[noreturn]] std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) { refuse_older("getMemoryInfo"); }
  [[noreturn]] int getPoolUseCount(c10::DeviceIndex, PoolId) { refuse_older("getPoolUseCount"); }
  [[noreturn]] void setUseOnOOM(c10::DeviceIndex, PoolId, bool) { refuse_older("use_on_oom"); }
  [[noreturn]] void setNoSplit(c10::DeviceIndex, PoolId) { refuse_older("no_split"); }
  [[noreturn]] void attachOomRejectionObserver(RejectionObserver) { refuse_older("attachOomRejectionObserver"); }
  void markCaptureBegin(c10::DeviceIndex) {}
  void markCaptureEnd(c10::DeviceIndex) {}
  npu_alloc::SnapshotInfo snapshot(PoolId id) {
    npu_alloc::SnapshotInfo all = native.snapshot();
    if (id != PoolId{0, 0}) {
      std::erase_if(all.segments, [&](const auto& segment) { return segment.owner_private_pool_id != id; });
    }
    return all;
  }
};

template <typename Native = NPUAllocator>
decltype(auto) block_handles(Native* native) {
  if constexpr (HasBlockHandles<Native>) {
    return static_cast<Native&>(*native);
  } else {
    return NoBlockHandles();
  }
}

template <typename Native = NPUAllocator>
decltype(auto) memory_fraction(Native* native) {
  if constexpr (HasMemoryFraction<Native>) {
    return static_cast<Native&>(*native);
  } else {
    return NoMemoryFraction();
  }
}

template <typename Native = NPUAllocator>
decltype(auto) counted_pools(Native* native) {
  if constexpr (HasCountedPools<Native>) {
    return static_cast<Native&>(*native);
  } else {
    return NoCountedPools();
  }
}

template <typename Native = NPUAllocator>
decltype(auto) device_allocator(Native* native) {
  if constexpr (HasDeviceAllocator<Native>) {
    return static_cast<Native&>(*native);
  } else {
    return NoDeviceAllocator<Native>{*native};
  }
}

}  // namespace onesided::torch_npu
