// torch_npu's pool protocol for aligned pools (create, begin, end, release), its caches, and graph captures.
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "aligned_allocator.h"
#include "next_pool.h"
#include "upstream_source.h"

namespace onesided::torch_npu {
namespace {

using CaptureId = PoolId::first_type;

thread_local bool captures_expected = true;

}  // namespace

void AlignedAllocator::createOrIncrefPool(c10::DeviceIndex device, PoolId id, std::shared_ptr<NPUAllocator> upstream) {
  if (const AlignedPoolPtr pool = directory_.find(id)) {
    pool->use_count.fetch_add(1);
    return;
  }
  if (!capturing(device)) directory_.sweep();
  const auto next = take_next_pool();
  if (!next) return counted_pools(native()).createOrIncrefPool(device, id, std::move(upstream));
  create_pool(device, id, std::move(upstream), next->options);
}

bool AlignedAllocator::add_declared_pool(c10::DeviceIndex device, PoolId id, std::shared_ptr<NPUAllocator> upstream) {
  if (!capturing(device)) directory_.sweep();
  const auto next = take_next_pool();
  if (!next) return false;
  create_pool(device, id, std::move(upstream), next->options);
  return true;
}

void AlignedAllocator::expect_captures(bool expected) { captures_expected = expected; }

void AlignedAllocator::begin_pool(c10::DeviceIndex device, PoolId id, bool all_threads) {
  const bool before = std::exchange(captures_expected, false);
  const auto restore = c10::make_scope_exit([&] { captures_expected = before; });
  if (all_threads) return beginAllocateToPool(device, id, [](aclrtStream) { return true; });
  const std::thread::id here = std::this_thread::get_id();
  beginAllocateToPool(device, id, [here](aclrtStream) { return std::this_thread::get_id() == here; });
}

void AlignedAllocator::note_capture(c10::DeviceIndex device, bool begins) {
  std::atomic<int>& captures = captures_[static_cast<std::size_t>(device)];
  if (begins) {
    captures.fetch_add(1);
  } else if (captures.fetch_sub(1) == 1) {
    directory_.bury_dead();  // what was released meanwhile was left alone
  }
}

AlignedPoolPtr AlignedAllocator::create_pool(c10::DeviceIndex device, PoolId id, std::shared_ptr<NPUAllocator> upstream,
                                             const PoolOptions& options) {
  // Contradictory settings leave torch_npu without a device, and its own code would then dereference null.
  TORCH_CHECK(native()->initialized(), "torch_npu could not initialize its allocator; its first error says why");
  QueueDevice& queue = queue_device(device);
  auto source = upstream ? make_upstream_source(queue, device, upstream) : make_device_source(queue);
  auto core = Pool::create(queue, std::move(source), options,
                           [this, device, id](std::uint64_t wanted) { return reclaim_for(device, id, wanted); });
  if (!core.ok()) {
    TORCH_CHECK_VALUE(core.status() != Status::kParamInvalid, core.error().text());
    TORCH_CHECK_WITH(OutOfMemoryError, false, "onesided: ", core.error().to_string());
  }
  const auto pool = std::make_shared<AlignedPool>(id, device, queue, std::move(upstream), *std::move(core));
  follow(pool);
  return directory_.add(pool);
}

ChosenPool AlignedAllocator::route(c10::DeviceIndex device, aclrtStream stream) {
  if (auto matched = routing_.lookup(device, stream)) return *std::move(matched);
  return has_default_.load() ? default_pool(device) : ChosenPool();
}

ChosenPool AlignedAllocator::default_pool(c10::DeviceIndex device) {
  AlignedPoolPtr model;
  {
    const std::lock_guard lock(mutex_);
    const AlignedPoolPtr& pool = default_pools_.at(static_cast<std::size_t>(device));
    if (pool || !default_model_) return ChosenPool(pool);
    model = default_model_;
  }
  // torch_npu counts its own ids from 1 in one of the two numbers; neither reaches these values.
  const PoolId id{~CaptureId{0} - static_cast<CaptureId>(device), ~CaptureId{0}};
  // T0, T1: the first allocations on the device -> both may make a pool, the directory keeps one. Not under the mutex,
  // because torch_npu is called.
  const AlignedPoolPtr pool = create_pool(device, id, model->upstream, model->pool->options());
  const std::lock_guard lock(mutex_);
  AlignedPoolPtr& slot = default_pools_[static_cast<std::size_t>(device)];
  if (default_model_ == model) {
    slot = pool;
  } else {
    pool->use_count = 0;  // the default was changed meanwhile; no other code releases this pool
  }
  return ChosenPool(slot);
}

bool AlignedAllocator::reclaim_for(c10::DeviceIndex device, PoolId id, std::uint64_t wanted) {
  std::uint64_t freed = 0;
  for (const AlignedPoolPtr& other : directory_.pools(device)) {
    if (other->id != id) freed += other->pool->trim(UINT64_MAX, Pool::Patience::kWaitForStreams);
  }
  if (freed >= wanted) return true;
  const auto reserved_before = native_stats(device).reserved_bytes[0].current;
  native()->FreeDeviceCachedMemory(device);
  return freed != 0 || native_stats(device).reserved_bytes[0].current < reserved_before;
}

void AlignedAllocator::beginAllocateToPool(c10::DeviceIndex device, PoolId id,
                                           std::function<bool(aclrtStream)> filter) {
  const AlignedPoolPtr pool = directory_.find(id);
  const bool captures = !kTellsCaptures && captures_expected;
  if (!pool) {
    native()->beginAllocateToPool(device, id, filter);
    routing_.begin(device, {id, nullptr, std::move(filter), captures});
    if (captures) note_capture(device, true);
    return;
  }
  TORCH_CHECK_VALUE(pool->device_index == device, "aligned pool (", id.first, ", ", id.second,
                    ") belongs to npu:", static_cast<int>(pool->device_index),
                    " and cannot be used on npu:", static_cast<int>(device),
                    "; make one pool per device, or pass device=", static_cast<int>(pool->device_index));
  pool->use_count.fetch_add(1);
  routing_.begin(device, {id, pool, std::move(filter), captures});
  if (captures) note_capture(device, true);
}

void AlignedAllocator::endAllocateToPool(c10::DeviceIndex device, PoolId id) {
  const bool captured = routing_.end(device, id);
  if (!directory_.find(id)) native()->endAllocateToPool(device, id);
  if (captured) note_capture(device, false);
}

void AlignedAllocator::releasePool(c10::DeviceIndex device, PoolId id) {
  const AlignedPoolPtr pool = directory_.find(id);
  if (!pool) return native()->releasePool(device, id);
  if (pool->use_count.fetch_sub(1) == 1 && !capturing(device)) directory_.bury_if_dead(pool);
}

int AlignedAllocator::getPoolUseCount(c10::DeviceIndex device, PoolId id) {
  const AlignedPoolPtr pool = directory_.find(id);
  return pool ? pool->use_count.load() : device_allocator(native()).getPoolUseCount(device, id);
}

void AlignedAllocator::setUseOnOOM(c10::DeviceIndex device, PoolId id, bool use_on_oom) {
  const AlignedPoolPtr pool = directory_.find(id);
  if (!pool) return device_allocator(native()).setUseOnOOM(device, id, use_on_oom);
  pool->use_on_oom = use_on_oom;
}

void AlignedAllocator::setNoSplit(c10::DeviceIndex device, PoolId id) {
  // An aligned pool got this at its creation (PoolOptions::no_split).
  if (!directory_.find(id)) device_allocator(native()).setNoSplit(device, id);
}

void AlignedAllocator::set_default_pool(std::optional<PoolId> id) {
  AlignedPoolPtr model;
  if (id) {
    model = directory_.find(*id);
    TORCH_CHECK_VALUE(model, "(", id->first, ", ", id->second, ") is not an aligned pool");
  }
  std::array<AlignedPoolPtr, kMaxDevices> replaced;
  {
    const std::lock_guard lock(mutex_);
    replaced.swap(default_pools_);
    std::swap(default_model_, model);
    if (default_model_) default_pools_[static_cast<std::size_t>(default_model_->device_index)] = default_model_;
    has_default_ = default_model_ != nullptr;
  }
  for (const AlignedPoolPtr& pool : replaced) {
    // Pools made here have no MemPool object that releases them.
    if (pool && pool != model) releasePool(pool->device_index, pool->id);
  }
}

void AlignedAllocator::trim_pools(int device) {
  for (const AlignedPoolPtr& pool : directory_.pools(device)) {
    if (capturing(pool->device_index)) continue;
    pool->pool->trim(UINT64_MAX, Pool::Patience::kWaitForStreams);
    directory_.bury_if_dead(pool);
  }
}

void AlignedAllocator::emptyCacheImpl(bool check_error, bool free_physical) {
  native()->emptyCacheImpl(check_error, free_physical);
  trim_pools(-1);
}

void AlignedAllocator::emptyCache(bool check_error) {
  native()->emptyCache(check_error);
  trim_pools(-1);
}

void AlignedAllocator::emptyCache(PoolId id) {
  if (const AlignedPoolPtr pool = directory_.find(id)) {
    if (capturing(pool->device_index)) return;
    pool->pool->trim(UINT64_MAX, Pool::Patience::kWaitForStreams);
    return directory_.bury_if_dead(pool);
  }
  counted_pools(native()).emptyCache(id);
  if (id == PoolId{0, 0}) trim_pools(-1);
}

void AlignedAllocator::FreeDeviceCachedMemory(int device) {
  native()->FreeDeviceCachedMemory(device);
  trim_pools(device);
}

void AlignedAllocator::markCaptureBegin(c10::DeviceIndex device) {
  note_capture(device, true);
  device_allocator(native()).markCaptureBegin(device);
}

void AlignedAllocator::markCaptureEnd(c10::DeviceIndex device) {
  device_allocator(native()).markCaptureEnd(device);
  note_capture(device, false);
}

bool AlignedAllocator::checkPoolLiveAllocations(c10::DeviceIndex device, PoolId id,
                                                const std::unordered_set<void*>& expected) {
  const AlignedPoolPtr pool = directory_.find(id);
  if (!pool) return native()->checkPoolLiveAllocations(device, id, expected);
  const auto live = pool->pool->live_addresses();
  return live.size() == expected.size() && std::all_of(live.begin(), live.end(), [&](std::uint64_t address) {
           return expected.count(reinterpret_cast<void*>(address)) != 0;
         });
}

std::shared_ptr<npu_alloc::AllocatorState> AlignedAllocator::getCheckpointState(c10::DeviceIndex device, PoolId id) {
  TORCH_CHECK_NOT_IMPLEMENTED(!directory_.find(id),
                              "graph trees cannot checkpoint an aligned pool; give them a pool of "
                              "their own and keep the KV cache in the aligned one");
  return native()->getCheckpointState(device, id);
}

void AlignedAllocator::setMemoryFraction(double fraction, int device) {
  native()->setMemoryFraction(fraction, device);
  fractions_.at(static_cast<std::size_t>(device)) = fraction;
}

double AlignedAllocator::fraction_of(int device) {
  std::atomic<double>& known = fractions_.at(static_cast<std::size_t>(device));
  if (known.load() == kUnknownFraction) {
    const c10_npu::NPUGuard guard(static_cast<c10::DeviceIndex>(device));  // the native allocator changes the device
    known = memory_fraction(native()).getMemoryFraction(device);
  }
  return known;
}

Result<void> AlignedAllocator::within_memory_fraction(c10::DeviceIndex index, std::uint64_t nbytes) {
  const double fraction = fraction_of(index);
  if (fraction >= 1.0) return {};
  ONESIDED_TRY_ASSIGN(info, queue_device(index).memory_info());
  auto reserved = static_cast<std::uint64_t>(native_stats(index).reserved_bytes[0].current);
  for (const AlignedPoolPtr& pool : directory_.pools(index)) {
    reserved += static_cast<std::uint64_t>(pool->pool->stats().reserved_bytes.current);
  }
  const auto allowed = static_cast<std::uint64_t>(fraction * static_cast<double>(info.total_bytes));
  if (reserved + nbytes <= allowed) return {};
  return Error{Status::kResourceExhausted,
               fmt::format("{} bytes are reserved, {} more would pass the memory fraction {} ({} bytes)", reserved,
                           nbytes, fraction, allowed)};
}

}  // namespace onesided::torch_npu
