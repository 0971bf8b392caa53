// The one place that knows how torch_npu's allocator interface differs from version to version. The decorator is
// written once, against the newest interface; what an older NPUAllocator lacks is added here as a virtual function that
// torch_npu never calls. Which functions a version has is read from its own headers; the table says what was found.
//
//   torch_npu                        block   fraction  counted  device
//                                    handles           pools    allocator
//   2.7.1, 2.8.0                     -       -         -        -
//   2.7.1.post2, 2.9.0               yes     -         -        -
//   2.10.0.post4, 2.10.0.post7       yes     yes       -        -
//   2.11.0.post3, 2.12.0.post3       yes     yes       yes      -
//   2.13.0, 2.14.0                   yes     yes       yes      yes
//
// What follows for users is in docs/versions.md.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "torch_npu_headers.h"

namespace onesided::torch_npu {

namespace npu_alloc = c10_npu::NPUCachingAllocator;
using npu_alloc::DeviceStats;
using npu_alloc::NPUAllocator;
using PoolId = c10_npu::MempoolId_t;
// Types that newer headers name.
using TraceTracker = std::function<void(const npu_alloc::TraceEntry&)>;
using RejectionObserver = std::function<void(std::int64_t, std::size_t, std::size_t, std::size_t)>;

// getBlockPtr, recordHcclWorkForBlock, eraseStreamWithBlockPtr: HCCL names a block by a handle.
template <typename T>
concept HasBlockHandles = requires(T& t, const c10::DataPtr& data) { t.getBlockPtr(data); };
// getMemoryFraction, hasCapturesUnderway.
template <typename T>
concept HasMemoryFraction = requires(T& t) { t.getMemoryFraction(0); };
// createOrIncrefPool, emptyCache(id), attachAllocatorTraceTracker: a MemPool makes and releases its pool in C++.
template <typename T>
concept HasCountedPools = requires(T& t, PoolId id) { t.createOrIncrefPool(0, id, nullptr); };
// The base c10::DeviceAllocator, pools' use counts and modes, marks of captures, snapshots of one pool.
template <typename T>
concept HasDeviceAllocator = requires(T& t, PoolId id) { t.getPoolUseCount(0, id); };

template <typename Base>
class AddBlockHandles : public Base {
 public:
  virtual void eraseStreamWithBlockPtr(void*, c10_npu::NPUStream, void*) = 0;
  virtual void* getBlockPtr(const c10::DataPtr&) = 0;
  virtual void recordHcclWorkForBlock(void*, void*) = 0;
};

template <typename Base>
class AddMemoryFraction : public Base {
 public:
  virtual double getMemoryFraction(int) = 0;
  virtual bool hasCapturesUnderway(c10::DeviceIndex) = 0;
};

template <typename Base>
class AddCountedPools : public Base {
 public:
  using Base::emptyCache;
  virtual void emptyCache(PoolId) = 0;
  virtual void createOrIncrefPool(c10::DeviceIndex, PoolId, std::shared_ptr<NPUAllocator>) = 0;
  virtual void attachAllocatorTraceTracker(TraceTracker) = 0;
};

template <typename Base>
class AddDeviceAllocator : public Base {
 public:
  virtual std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) = 0;
  virtual DeviceStats getDeviceStats(c10::DeviceIndex) = 0;
  virtual void resetAccumulatedStats(c10::DeviceIndex) = 0;
  virtual void resetPeakStats(c10::DeviceIndex) = 0;
  virtual npu_alloc::SnapshotInfo snapshot(PoolId) = 0;
  virtual int getPoolUseCount(c10::DeviceIndex, PoolId) = 0;
  virtual void setUseOnOOM(c10::DeviceIndex, PoolId, bool) = 0;
  virtual void setNoSplit(c10::DeviceIndex, PoolId) = 0;
  virtual void markCaptureBegin(c10::DeviceIndex) = 0;
  virtual void markCaptureEnd(c10::DeviceIndex) = 0;
  virtual void attachOomRejectionObserver(RejectionObserver) = 0;
  // The older form of the same questions.
  DeviceStats getDeviceStats(int device) final { return getDeviceStats(static_cast<c10::DeviceIndex>(device)); }
  void resetAccumulatedStats(int device) final { resetAccumulatedStats(static_cast<c10::DeviceIndex>(device)); }
  void resetPeakStats(int device) final { resetPeakStats(static_cast<c10::DeviceIndex>(device)); }
  npu_alloc::SnapshotInfo snapshot() final { return snapshot(PoolId{0, 0}); }
};

template <typename Base>
struct Complete {
  using A = std::conditional_t<HasBlockHandles<Base>, Base, AddBlockHandles<Base>>;
  using B = std::conditional_t<HasMemoryFraction<Base>, A, AddMemoryFraction<A>>;
  using C = std::conditional_t<HasCountedPools<Base>, B, AddCountedPools<B>>;
  using type = std::conditional_t<HasDeviceAllocator<Base>, C, AddDeviceAllocator<C>>;
};
// What the decorator implements: NPUAllocator of this torch_npu with all that the newest has.
using CompleteAllocator = Complete<NPUAllocator>::type;

// Length of the key under which the runtime shares memory with other processes.
inline constexpr std::size_t kIpcKeyBytes = 65;

// torch_npu tells when a graph capture begins and ends. Where it does not, a capture is known by the pool it begins.
inline constexpr bool kTellsCaptures = HasDeviceAllocator<NPUAllocator>;
// torch_npu's MemPool makes its pool in C++, where the allocator hears of it. Elsewhere onesided.npu makes it.
inline constexpr bool kPoolsMadeInCpp = HasCountedPools<NPUAllocator>;

// A trace entry, with the pool's id where the version has a place for it.
template <typename Entry = npu_alloc::TraceEntry>
Entry trace_entry(typename Entry::Action action, int device, std::uint64_t address, std::size_t nbytes,
                  aclrtStream stream, PoolId pool, std::shared_ptr<c10::GatheredContext> context) {
  const auto start = static_cast<std::int64_t>(address);
  if constexpr (std::is_constructible_v<Entry, typename Entry::Action, int, std::int64_t, std::size_t, aclrtStream,
                                        PoolId, std::shared_ptr<c10::GatheredContext>>) {
    return Entry(action, device, start, nbytes, stream, pool, std::move(context));
  } else {
    return Entry(action, device, start, nbytes, stream, std::move(context));
  }
}

}  // namespace onesided::torch_npu
