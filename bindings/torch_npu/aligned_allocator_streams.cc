// Operations on an allocated block: streams, handles of collectives, sharing with another process, memory errors. Each
// first decides whether the block belongs to an aligned pool or to the native allocator.
#include <c10/util/Exception.h>

#include <string>

#include "aligned_allocator.h"

namespace onesided::torch_npu {
namespace {

// The handle of a block in an aligned pool is its address plus one. Handles of the native allocator are pointers to
// objects, which are even.
void* handle_of(void* address) { return static_cast<char*>(address) + 1; }
bool is_our_handle(const void* handle) { return (reinterpret_cast<std::uintptr_t>(handle) & 1) != 0; }
void* address_of(void* handle) { return static_cast<char*>(handle) - 1; }

// Format of torch_npu's shareable handles: version, kind, export key.
constexpr char kHandleVersion = 1;
constexpr char kPlainMemory = 'c';

}  // namespace

AlignedPoolPtr AlignedAllocator::ours(const c10::DataPtr& data) {
  if (!data.get_context()) return nullptr;
  if (data.get_deleter() != &free_block && data.get_deleter() != &free_any) return nullptr;
  return directory_.owner_of(data.get_context());
}

void AlignedAllocator::recordStream(const c10::DataPtr& data, c10_npu::NPUStream stream) {
  const AlignedPoolPtr pool = ours(data);
  if (!pool) return native()->recordStream(data, stream);
  const auto recorded = pool->pool->record_stream(data.get_context(), pool->device.name_stream(stream));
  TORCH_CHECK(recorded.ok(), "onesided: record_stream: ", recorded.error().to_string());
}

void AlignedAllocator::eraseStream(const c10::DataPtr& data, c10_npu::NPUStream stream) {
  const AlignedPoolPtr pool = ours(data);
  if (!pool) return native()->eraseStream(data, stream);
  // As in the native allocator: only if the block's own stream is the one that waited for `stream`.
  const auto own = pool->pool->stream_of(data.get_context());
  TORCH_CHECK(own.ok(), "onesided: erase_stream: ", own.error().to_string());
  if (own->handle != c10_npu::getCurrentNPUStream(pool->device_index).stream(false)) return;
  (void)pool->pool->erase_stream(data.get_context(), Stream{stream.stream(false)});
}

void* AlignedAllocator::getBlockPtr(const c10::DataPtr& data) {
  return ours(data) ? handle_of(data.get_context()) : block_handles(native()).getBlockPtr(data);
}

void AlignedAllocator::recordHcclWorkForBlock(void* handle, void* work) {
  if (!is_our_handle(handle)) return block_handles(native()).recordHcclWorkForBlock(handle, work);
  if (const AlignedPoolPtr pool = directory_.owner_of(address_of(handle))) {
    pool->set_collective_work(address_of(handle), work);
  }
}

void AlignedAllocator::eraseStreamWithBlockPtr(void* handle, c10_npu::NPUStream stream, void* work) {
  if (!is_our_handle(handle)) return block_handles(native()).eraseStreamWithBlockPtr(handle, stream, work);
  TORCH_CHECK(work, "invalid hccl work pointer");
  void* address = address_of(handle);
  const AlignedPoolPtr pool = directory_.owner_of(address);
  if (!pool) return;  // the tensor was freed, and its streams with it
  if (pool->collective_work(address) != work) return;
  const auto own = pool->pool->stream_of(address);
  if (!own.ok() || own->handle != c10_npu::getCurrentNPUStream(pool->device_index).stream(false)) return;
  (void)pool->pool->erase_stream(address, Stream{stream.stream(false)});
}

void* AlignedAllocator::getBaseAllocation(void* address, size_t* nbytes) {
  const AlignedPoolPtr pool = directory_.owner_of(address);
  if (!pool) return native()->getBaseAllocation(address, nbytes);
  const auto segment = pool->pool->segment_of(address);
  TORCH_CHECK(segment, "onesided: ", address, " lies in no segment");
  if (nbytes) *nbytes = segment->nbytes;
  return reinterpret_cast<void*>(segment->address);
}

npu_alloc::ShareableHandle AlignedAllocator::shareIpcHandle(void* address) {
  const AlignedPoolPtr pool = directory_.owner_of(address);
  if (!pool) return native()->shareIpcHandle(address);
  const auto segment = pool->pool->segment_of(address);
  TORCH_CHECK(segment, "onesided: ", address, " lies in no segment");
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  std::string handle{kHandleVersion, kPlainMemory};
  handle += pool->export_key(*segment);
  return {static_cast<ptrdiff_t>(start - segment->address), handle};
}

bool AlignedAllocator::checkBlockIsSafe(const c10::DataPtr& data) {
  const AlignedPoolPtr pool = ours(data);
  if (!pool) return native()->checkBlockIsSafe(data);
  return pool->is_safe(data.get_context());
}

void AlignedAllocator::markAllBlockUnsafe(int device) {
  native()->markAllBlockUnsafe(device);
  for (const AlignedPoolPtr& pool : directory_.pools(device)) pool->mark_all_unsafe();
}

void AlignedAllocator::updateBlockToSafe(const c10::DataPtr& data) {
  const AlignedPoolPtr pool = ours(data);
  if (!pool) return native()->updateBlockToSafe(data);
  pool->mark_safe(data.get_context());
}

void AlignedAllocator::cleanEvent() {
  native()->cleanEvent();
  // The device was reset: earlier events never complete.
  for (const AlignedPoolPtr& pool : directory_.pools()) pool->pool->forget_events();
}

}  // namespace onesided::torch_npu
