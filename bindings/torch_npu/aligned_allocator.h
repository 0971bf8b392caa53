// A decorator of torch_npu's device allocator. torch_npu requests all device memory from one replaceable object. The
// decorator serves allocations of aligned pools and forwards everything else unchanged, so without an aligned pool the
// vendor's code runs. Every virtual function that takes a pointer recognises blocks of aligned pools, because the
// native code would dereference null for them.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "aligned_pool.h"
#include "newer_calls.h"
#include "pool_directory.h"
#include "routing.h"

namespace onesided::torch_npu {

// Set by the Python MemPool before it constructs the C++ one: the next pool that this thread creates is aligned.
struct NextPool {
  PoolOptions options;
};

// The decorator. Internally synchronized, one per process, never destroyed, because storages keep it as their
// allocator. Rules for locks: torch_npu may call with its own locks held; no lock of this class is held while torch_npu
// is called.
class AlignedAllocator final : public CompleteAllocator {
 public:
  static AlignedAllocator& instance();

  // Replaces the current allocator and forwards to it. False: installed already.
  bool install();
  // Restores the native allocator. FAILED, with the aligned pools or blocks that are still in use.
  Result<void> uninstall();
  bool installed() const;

  // The next pool that this thread constructs is aligned; std::nullopt cancels this.
  static void declare_next_pool(std::optional<NextPool> next);
  // Allocations outside pools come from this aligned pool, on other devices from an equal one (form B). std::nullopt:
  // from the native allocator again.
  void set_default_pool(std::optional<PoolId> id);
  // For versions whose MemPool does not make its pool in C++: makes the one that was declared, for the MemPool with the
  // id. False: none was declared. Throws c10::Error like createOrIncrefPool().
  bool add_declared_pool(c10::DeviceIndex device, PoolId id, std::shared_ptr<NPUAllocator> upstream);
  // The pool receives allocations, of this thread or of all, until endAllocateToPool(). Never taken for a capture.
  void begin_pool(c10::DeviceIndex device, PoolId id, bool all_threads);
  // What this thread begins next is, or is not, taken for a capture where torch_npu does not tell (kTellsCaptures).
  static void expect_captures(bool expected);
  PoolDirectory& directory() { return directory_; }
  NPUAllocator* native() const { return native_.load(std::memory_order_acquire); }

  // aligned_allocator.cc: memory
  c10::DataPtr allocate(size_t nbytes) override;
  c10::DataPtr allocate_with_aligned(size_t nbytes, size_t aligned_kib) const override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t count) const override { native()->copy_data(to, from, count); }
  void* raw_alloc(size_t nbytes) override;
  void* raw_alloc_with_stream(size_t nbytes, aclrtStream stream) override;
  void raw_delete(void* address) override;

  // aligned_allocator_streams.cc: streams, block handles, IPC, memory errors
  using CompleteAllocator::recordStream;
  void recordStream(const c10::DataPtr& data, c10_npu::NPUStream stream) override;
  void eraseStream(const c10::DataPtr& data, c10_npu::NPUStream stream) override;
  void eraseStreamWithBlockPtr(void* handle, c10_npu::NPUStream stream, void* work) override;
  void* getBlockPtr(const c10::DataPtr& data) override;
  void recordHcclWorkForBlock(void* handle, void* work) override;
  void* getBaseAllocation(void* address, size_t* nbytes) override;
  npu_alloc::ShareableHandle shareIpcHandle(void* address) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return native()->getIpcDevPtr(std::move(handle)); }
  bool checkUceInMemPool(int device) override { return native()->checkUceInMemPool(device); }
  bool checkBlockIsSafe(const c10::DataPtr& data) override;
  void markAllBlockUnsafe(int device) override;
  void updateBlockToSafe(const c10::DataPtr& data) override;
  void cleanEvent() override;
  void buildServerMemMapForHccl(int device, std::shared_ptr<c10d_npu::HCCLComm> comm) override {
    native()->buildServerMemMapForHccl(device, std::move(comm));
  }

  // aligned_allocator_pools.cc: pools, caches, captures
  void init(int device_count) override { native()->init(device_count); }
  bool initialized() override { return native()->initialized(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return device_allocator(native()).getMemoryInfo(device);
  }
  double getMemoryFraction(int device) override { return memory_fraction(native()).getMemoryFraction(device); }
  void setMemoryFraction(double fraction, int device) override;
  void emptyCacheImpl(bool check_error, bool free_physical) override;
  void emptyCache(bool check_error) override;
  void emptyCache(PoolId id = {0, 0}) override;
  void emptyVirtAddrCache(bool check_error) override { native()->emptyVirtAddrCache(check_error); }
  void FreeDeviceCachedMemory(int device) override;
  void createOrIncrefPool(c10::DeviceIndex device, PoolId id, std::shared_ptr<NPUAllocator> upstream) override;
  void beginAllocateToPool(c10::DeviceIndex device, PoolId id, std::function<bool(aclrtStream)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, PoolId id) override;
  void releasePool(c10::DeviceIndex device, PoolId id) override;
  int getPoolUseCount(c10::DeviceIndex device, PoolId id) override;
  void setUseOnOOM(c10::DeviceIndex device, PoolId id, bool use_on_oom) override;
  void setNoSplit(c10::DeviceIndex device, PoolId id) override;
  bool hasCapturesUnderway(c10::DeviceIndex device) override {
    return memory_fraction(native()).hasCapturesUnderway(device);
  }
  void markCaptureBegin(c10::DeviceIndex device) override;
  void markCaptureEnd(c10::DeviceIndex device) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device, PoolId id, const std::unordered_set<void*>& expected) override;
  std::shared_ptr<npu_alloc::AllocatorState> getCheckpointState(c10::DeviceIndex device, PoolId id) override;
  npu_alloc::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                                    std::shared_ptr<npu_alloc::AllocatorState> state) override {
    return native()->setCheckpointPoolState(device, std::move(state));
  }

  // aligned_allocator_report.cc: statistics, snapshots, observers
  std::string name() override { return native()->name(); }
  void cacheInfo(int device, size_t* cached_and_free, size_t* largest_block) override;
  DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  npu_alloc::SnapshotInfo snapshot(PoolId id = {0, 0}) override;
  bool isHistoryEnabled() override { return native()->isHistoryEnabled(); }
  void recordHistory(bool enabled, npu_alloc::CreateContextFn recorder, size_t max_entries,
                     npu_alloc::RecordContext when) override;
  void attachOutOfMemoryObserver(npu_alloc::OutOfMemoryObserver observer) override;
  void attachOomRejectionObserver(RejectionObserver observer) override {
    device_allocator(native()).attachOomRejectionObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(TraceTracker tracker) override;
  // "aligned pool (0, 3) on npu:0: 64 MiB reserved, 60 MiB allocated, 0 overhead", one line per pool.
  std::string describe_pools(int device);

 private:
  class SegmentTracer;

  AlignedAllocator() = default;

  // Runs `body` on the native allocator, within the memory fraction that both share.
  template <typename Body>
  auto with_native(Body body) -> decltype(body());
  // If `body` runs out of memory, idle segments of aligned pools are freed and it runs once more.
  template <typename Body>
  auto with_our_cache(int device, Body body) -> decltype(body());
  static void give_up(c10::DataPtr& data) { data.clear(); }
  void give_up(void*& address) { native()->raw_delete(std::exchange(address, nullptr)); }
  bool give_way(int device);
  // Reports the segments of a new pool to torch_npu's trace trackers and history.
  void follow(const AlignedPoolPtr& pool);
  // As with_native(), and finally the free blocks of pools made with use_on_oom. `lend(address)` makes the result from
  // such a block.
  template <typename Body, typename Lend>
  auto with_native_or_lent(size_t nbytes, Body body, Lend lend) -> decltype(body());
  void* lent_by_pools(int device, size_t nbytes);

  // True if no allocation can go to an aligned pool now. Two loads, on the path of every allocation.
  bool quiet() const { return routing_.quiet() && !has_default_.load(std::memory_order_relaxed); }
  // The aligned pool for an allocation by this thread, or null for the native allocator.
  ChosenPool route(c10::DeviceIndex device, aclrtStream stream);
  ChosenPool default_pool(c10::DeviceIndex device);
  // The pool with the id: a new one, or one that another thread added meanwhile.
  AlignedPoolPtr create_pool(c10::DeviceIndex device, PoolId id, std::shared_ptr<NPUAllocator> upstream,
                             const PoolOptions& options);
  void* take(const AlignedPoolPtr& pool, size_t nbytes, Stream stream);
  void give_back(const AlignedPoolPtr& pool, void* address);
  static void free_block(void* address);  // deleter of blocks that allocate() served itself
  static void free_any(void* address);    // deleter of blocks of either allocator
  AlignedPoolPtr ours(const c10::DataPtr& data);
  std::shared_ptr<const void> gather_context(npu_alloc::RecordContext level);
  [[noreturn]] void throw_out_of_memory(const AlignedPool& pool, const Error& error);
  // Frees the cached memory of all pools except `id` on the device.
  bool reclaim_for(c10::DeviceIndex device, PoolId id, std::uint64_t wanted);
  void note_capture(c10::DeviceIndex device, bool begins);
  bool capturing(c10::DeviceIndex device) const { return captures_[static_cast<std::size_t>(device)].load() != 0; }

  QueueDevice& queue_device(c10::DeviceIndex index);
  // Checks that native bytes, aligned bytes and `nbytes` more stay within the user's memory fraction of the device.
  Result<void> within_memory_fraction(c10::DeviceIndex index, std::uint64_t nbytes);
  bool within_fraction_together(int device) {
    return within_memory_fraction(static_cast<c10::DeviceIndex>(device), 0).ok();
  }
  double fraction_of(int device);
  void trim_pools(int device);
  DeviceStats native_stats(c10::DeviceIndex device);

  static constexpr std::size_t kMaxDevices = 64;
  static constexpr double kUnknownFraction = -1;

  std::atomic<NPUAllocator*> native_{nullptr};
  PoolDirectory directory_;
  Routing routing_;
  std::atomic<bool> has_default_{false};
  std::array<std::atomic<int>, kMaxDevices> captures_{};
  std::array<std::atomic<double>, kMaxDevices> fractions_{};  // what the native allocator returns after a driver call
  std::array<std::atomic<std::int64_t>, kMaxDevices>
      cured_ooms_{};  // counted by the native allocator, but resolved before the caller got an error

  std::mutex mutex_;  // guards the members below
  std::array<std::unique_ptr<QueueDevice>, kMaxDevices> devices_;
  std::array<AlignedPoolPtr, kMaxDevices> default_pools_;
  AlignedPoolPtr default_model_;  // the model of default pools on other devices
  std::vector<npu_alloc::OutOfMemoryObserver> oom_observers_;
  std::vector<TraceTracker> trackers_;
  std::size_t history_entries_ = 0;
  // Read on every allocation in a pool.
  std::atomic<npu_alloc::CreateContextFn> context_recorder_{nullptr};
  std::atomic<npu_alloc::RecordContext> context_level_{npu_alloc::RecordContext::NEVER};
};

}  // namespace onesided::torch_npu
