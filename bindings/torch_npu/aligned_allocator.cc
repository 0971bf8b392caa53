#include "aligned_allocator.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "onesided/base/align.h"
#include "onesided/device/acl/factory.h"

namespace onesided::torch_npu {
namespace {

thread_local std::optional<NextPool> next_pool;
// Observers of out-of-memory must not be called for a failure that a retry resolves.
thread_local bool oom_may_be_cured = false;

int current_device() {
  int device = 0;
  TORCH_CHECK(c10_npu::GetDevice(&device) == 0, "onesided: no current NPU device");
  return device;
}

}  // namespace

AlignedAllocator& AlignedAllocator::instance() {
  static auto* allocator = new AlignedAllocator;
  return *allocator;
}

bool AlignedAllocator::installed() const { return npu_alloc::allocator.load() == this; }

bool AlignedAllocator::install() {
  if (installed()) return false;
  // T0: install | T1: allocates -> T1 gets the native allocator or a decorator whose native_ is set; both are correct.
  native_.store(npu_alloc::allocator.load(), std::memory_order_release);
  for (auto& fraction : fractions_) fraction = kUnknownFraction;
  npu_alloc::allocator.store(this);
  return true;
}

Result<void> AlignedAllocator::uninstall() {
  if (!installed()) return {};
  trim_pools(-1);
  std::string living;
  for (const AlignedPoolPtr& pool : directory_.pools()) {
    living += fmt::format("{}({}, {})", living.empty() ? "" : ", ", pool->id.first, pool->id.second);
  }
  if (!living.empty()) {
    return Error{Status::kBusy,
                 fmt::format("aligned pools are still in use: {}; delete the pools and their tensors first", living)};
  }
  npu_alloc::allocator.store(native());
  return {};
}

void AlignedAllocator::declare_next_pool(std::optional<NextPool> next) { next_pool = std::move(next); }

std::optional<NextPool> take_next_pool() { return std::exchange(next_pool, std::nullopt); }

bool native_oom_may_be_cured() { return oom_may_be_cured; }

template <typename Body>
auto AlignedAllocator::with_native(Body body) -> decltype(body()) {
  const int device = current_device();
  if (capturing(static_cast<c10::DeviceIndex>(device))) return body();
  directory_.sweep();
  auto result = with_our_cache(device, body);
  if (fraction_of(device) >= 1.0 || within_fraction_together(device)) [[likely]]
    return result;
  // torch_npu counts its own bytes only. If both together exceed the limit, this allocator's idle segments are freed
  // first, then torch_npu's.
  if (give_way(device) && within_fraction_together(device)) return result;
  for (const bool last_try : {false, true}) {
    give_up(result);
    native()->FreeDeviceCachedMemory(device);
    if (last_try) break;
    result = body();
    if (within_fraction_together(device)) return result;
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, "NPU out of memory: the memory fraction ", fraction_of(device),
                   " of device ", device, " covers native and aligned bytes together. ", describe_pools(device));
}

template <typename Body>
auto AlignedAllocator::with_our_cache(int device, Body body) -> decltype(body()) {
  try {
    oom_may_be_cured = true;
    auto result = body();
    oom_may_be_cured = false;
    return result;
  } catch (const c10::OutOfMemoryError&) {
    oom_may_be_cured = false;
    if (!give_way(device)) throw;
    cured_ooms_[static_cast<std::size_t>(device)].fetch_add(1);
  } catch (...) {
    oom_may_be_cured = false;
    throw;
  }
  return body();
}

template <typename Body, typename Lend>
auto AlignedAllocator::with_native_or_lent(size_t nbytes, Body body, Lend lend) -> decltype(body()) {
  try {
    return with_native(body);
  } catch (const c10::OutOfMemoryError&) {
    const int device = current_device();
    void* address = lent_by_pools(device, nbytes);
    if (!address) throw;
    cured_ooms_[static_cast<std::size_t>(device)].fetch_add(1);
    return lend(address);
  }
}

void* AlignedAllocator::lent_by_pools(int device, size_t nbytes) {
  for (const AlignedPoolPtr& pool : directory_.pools(device)) {
    if (!pool->use_on_oom) continue;
    const Stream stream = pool->device.name_stream(c10_npu::getCurrentNPUStream(pool->device_index));
    const auto block = pool->pool->allocate(
        {.nbytes = nbytes, .stream = stream, .device_quiet = capturing(pool->device_index), .may_grow = false});
    if (block.ok()) return block->address;
  }
  return nullptr;
}

bool AlignedAllocator::give_way(int device) {
  std::uint64_t freed = 0;
  for (const AlignedPoolPtr& pool : directory_.pools(device)) {
    freed += pool->pool->trim(UINT64_MAX, Pool::Patience::kWaitForStreams);
  }
  return freed != 0;
}

// The first line of the next four functions is rule 5 of the pools: without an aligned pool the vendor's code runs, at
// the cost of one load and one branch.
c10::DataPtr AlignedAllocator::allocate(size_t nbytes) {
  if (!directory_.any()) [[likely]]
    return native()->allocate(nbytes);
  const auto native_way = [&] { return native()->allocate(nbytes); };
  const auto ours = [](void* address) -> c10::DataPtr {
    const auto index = static_cast<c10::DeviceIndex>(current_device());
    return {address, address, &free_block, c10::Device(c10::DeviceType::PrivateUse1, index)};
  };
  if (quiet()) return with_native_or_lent(nbytes, native_way, ours);
  const auto index = static_cast<c10::DeviceIndex>(current_device());
  const c10_npu::NPUStream stream = c10_npu::getCurrentNPUStream(index);
  const ChosenPool pool = route(index, stream.stream(false));
  if (!pool) return with_native_or_lent(nbytes, native_way, ours);
  return ours(take(*pool, nbytes, pool->device.name_stream(stream)));
}

c10::DataPtr AlignedAllocator::allocate_with_aligned(size_t nbytes, size_t aligned_kib) const {
  if (!directory_.any()) [[likely]]
    return native()->allocate_with_aligned(nbytes, aligned_kib);
  // The interface is const; the native allocator casts it away too.
  auto& self = const_cast<AlignedAllocator&>(*this);
  const auto native_way = [&] { return native()->allocate_with_aligned(nbytes, aligned_kib); };
  if (self.quiet()) return self.with_native(native_way);
  const auto index = static_cast<c10::DeviceIndex>(current_device());
  const c10_npu::NPUStream stream = c10_npu::getCurrentNPUStream(index);
  const ChosenPool pool = self.route(index, stream.stream(false));
  if (!pool) return self.with_native(native_way);
  const std::uint64_t alignment = std::max<std::uint64_t>(aligned_kib * kKiB, 1);
  const std::uint64_t extra = alignment > pool->pool->options().alignment ? alignment : 0;
  void* address = self.take(*pool, nbytes == 0 ? 0 : nbytes + extra, pool->device.name_stream(stream));
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  void* data = extra == 0 ? address : reinterpret_cast<void*>((start + alignment - 1) / alignment * alignment);
  return {data, address, &free_block, c10::Device(c10::DeviceType::PrivateUse1, index)};
}

c10::DeleterFnPtr AlignedAllocator::raw_deleter() const {
  return directory_.any() ? &free_any : native()->raw_deleter();
}

void* AlignedAllocator::raw_alloc(size_t nbytes) {
  if (!directory_.any()) [[likely]]
    return native()->raw_alloc(nbytes);
  if (quiet() || nbytes == 0) return with_native([&] { return native()->raw_alloc(nbytes); });
  const auto index = static_cast<c10::DeviceIndex>(current_device());
  const c10_npu::NPUStream stream = c10_npu::getCurrentNPUStream(index);
  const ChosenPool pool = route(index, stream.stream(false));
  if (!pool) return with_native([&] { return native()->raw_alloc(nbytes); });
  return take(*pool, nbytes, pool->device.name_stream(stream));
}

void* AlignedAllocator::raw_alloc_with_stream(size_t nbytes, aclrtStream stream) {
  if (!directory_.any()) [[likely]]
    return native()->raw_alloc_with_stream(nbytes, stream);
  const auto native_way = [&] { return native()->raw_alloc_with_stream(nbytes, stream); };
  if (quiet() || nbytes == 0) return with_native(native_way);
  const ChosenPool pool = route(static_cast<c10::DeviceIndex>(current_device()), stream);
  if (!pool) return with_native(native_way);
  return take(*pool, nbytes, Stream{stream});
}

void AlignedAllocator::raw_delete(void* address) {
  if (!directory_.any()) [[likely]]
    return native()->raw_delete(address);
  if (const AlignedPoolPtr pool = directory_.owner_of(address)) return give_back(pool, address);
  native()->raw_delete(address);
}

void* AlignedAllocator::take(const AlignedPoolPtr& pool, size_t nbytes, Stream stream) {
  if (!capturing(pool->device_index)) directory_.sweep();
  const auto allocation = pool->pool->allocate({.nbytes = nbytes,
                                                .stream = stream,
                                                .context = gather_context(npu_alloc::RecordContext::STATE),
                                                .device_quiet = capturing(pool->device_index)});
  if (!allocation.ok()) throw_out_of_memory(*pool, allocation.error());
  return allocation->address;
}

void AlignedAllocator::give_back(const AlignedPoolPtr& pool, void* address) {
  pool->forget_marks(address);
  const bool quiet = capturing(pool->device_index);
  const auto freed = pool->pool->free(address, quiet);
  TORCH_CHECK(freed.ok(), "onesided: ", freed.error().to_string());
  if (pool->retired() && !quiet) directory_.bury_if_dead(pool);
}

void AlignedAllocator::free_block(void* address) {
  if (!address) return;
  AlignedAllocator& self = instance();
  const AlignedPoolPtr pool = self.directory_.owner_of(address);
  TORCH_CHECK(pool, "onesided: ", address, " belongs to no aligned pool");
  self.give_back(pool, address);
}

void AlignedAllocator::free_any(void* address) {
  if (address) instance().raw_delete(address);
}

void AlignedAllocator::throw_out_of_memory(const AlignedPool& pool, const Error& error) {
  TORCH_CHECK(error.status() == Status::kResourceExhausted, "onesided: ", error.to_string());
  const auto total = pool.device.memory_info();
  std::vector<npu_alloc::OutOfMemoryObserver> observers;
  {
    const std::lock_guard lock(mutex_);
    observers = oom_observers_;
  }
  const MemoryInfo info = total.ok() ? *total : MemoryInfo{};
  for (const auto& observer : observers) {
    observer(pool.device_index, pool.pool->stats().allocated_bytes.current, static_cast<std::int64_t>(info.total_bytes),
             static_cast<std::int64_t>(info.free_bytes));
  }
  const DeviceStats native = native_stats(pool.device_index);
  TORCH_CHECK_WITH(
      OutOfMemoryError, false,
      fmt::format("NPU out of memory in aligned pool ({}, {}): {}. Device {}: {} bytes total, {} free. The native "
                  "allocator: {} reserved, {} allocated. {}",
                  pool.id.first, pool.id.second, error.text(), pool.device_index, info.total_bytes, info.free_bytes,
                  native.reserved_bytes[0].current, native.allocated_bytes[0].current,
                  describe_pools(pool.device_index)));
}

std::shared_ptr<const void> AlignedAllocator::gather_context(npu_alloc::RecordContext level) {
  if (context_level_.load(std::memory_order_relaxed) < level) [[likely]]
    return nullptr;
  const npu_alloc::CreateContextFn recorder = context_recorder_.load();
  return recorder ? recorder() : nullptr;
}

QueueDevice& AlignedAllocator::queue_device(c10::DeviceIndex index) {
  const std::lock_guard lock(mutex_);
  auto& slot = devices_.at(static_cast<std::size_t>(index));
  if (!slot) {
    const auto native_device = acl_device(index);
    TORCH_CHECK(native_device.ok(), "onesided: ", native_device.error().to_string());
    slot = std::make_unique<QueueDevice>(
        **native_device, index, [this, index](std::uint64_t nbytes) { return within_memory_fraction(index, nbytes); });
  }
  return *slot;
}

}  // namespace onesided::torch_npu
