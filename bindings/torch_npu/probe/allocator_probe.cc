// For tests: a C interface (ctypes) to the allocator's virtual functions. torch_npu's C++ code (collectives, sharing
// with other processes, memory-error recovery, graph trees) calls virtual functions that Python cannot reach, or only
// with the hardware. The tests call them through the same exported pointer and on real blocks, because a function that
// dereferences a foreign pointer crashes. probe_error() returns the exception's text of the last call.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <unordered_set>

#include "../newer_calls.h"

#define ONESIDED_PROBE extern "C" __attribute__((visibility("default")))

namespace {

using namespace onesided::torch_npu;  // NOLINT

thread_local std::string last_error;

// Returns the body's result; after an exception a value-initialised one, with the exception's text in last_error.
template <typename Body>
auto guarded(Body body) -> decltype(body(std::declval<NPUAllocator&>())) {
  last_error.clear();
  try {
    return body(*c10_npu::NPUCachingAllocator::allocator.load());
  } catch (const std::exception& error) {
    last_error = error.what();
  }
  return decltype(body(std::declval<NPUAllocator&>()))();
}

c10::DataPtr& data_of(void* data) { return *static_cast<c10::DataPtr*>(data); }

c10_npu::NPUStream stream_of(std::int64_t stream_id, int device) {
  return c10_npu::NPUStream(
      c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)),
                  stream_id));
}

}  // namespace

// Text of the exception of this thread's last call; empty if there was none.
ONESIDED_PROBE const char* probe_error() { return last_error.c_str(); }

// A c10::DataPtr made by the current allocator, owned by the caller; null: see probe_error().
ONESIDED_PROBE void* probe_allocate(std::uint64_t nbytes) {
  return guarded([&](NPUAllocator& allocator) -> void* { return new c10::DataPtr(allocator.allocate(nbytes)); });
}
ONESIDED_PROBE void* probe_allocate_aligned(std::uint64_t nbytes, std::uint64_t kib) {
  return guarded(
      [&](NPUAllocator& allocator) -> void* { return new c10::DataPtr(allocator.allocate_with_aligned(nbytes, kib)); });
}
ONESIDED_PROBE void probe_free(void* data) { delete &data_of(data); }
ONESIDED_PROBE void* probe_address(void* data) { return data_of(data).get(); }

ONESIDED_PROBE void probe_record_stream(void* data, std::int64_t stream_id, int device) {
  guarded([&](NPUAllocator& allocator) { allocator.recordStream(data_of(data), stream_of(stream_id, device)); });
}
ONESIDED_PROBE void probe_erase_stream(void* data, std::int64_t stream_id, int device) {
  guarded([&](NPUAllocator& allocator) { allocator.eraseStream(data_of(data), stream_of(stream_id, device)); });
}

ONESIDED_PROBE void* probe_block_handle(void* data) {
  return guarded([&](NPUAllocator& allocator) { return block_handles(&allocator).getBlockPtr(data_of(data)); });
}
ONESIDED_PROBE void probe_record_work(void* handle, void* work) {
  guarded([&](NPUAllocator& allocator) { block_handles(&allocator).recordHcclWorkForBlock(handle, work); });
}
ONESIDED_PROBE void probe_erase_stream_of_handle(void* handle, std::int64_t stream_id, int device, void* work) {
  guarded([&](NPUAllocator& allocator) {
    block_handles(&allocator).eraseStreamWithBlockPtr(handle, stream_of(stream_id, device), work);
  });
}

ONESIDED_PROBE void* probe_base_allocation(void* address, std::uint64_t* nbytes) {
  return guarded([&](NPUAllocator& allocator) -> void* {
    std::size_t size = 0;
    void* base = allocator.getBaseAllocation(address, &size);
    *nbytes = size;
    return base;
  });
}

// Writes the shareable handle (at most `capacity` bytes) and returns its length, 0 on an error. `offset`: of the
// address in the shared segment.
ONESIDED_PROBE std::uint64_t probe_share(void* address, char* handle, std::uint64_t capacity, std::int64_t* offset) {
  return guarded([&](NPUAllocator& allocator) -> std::uint64_t {
    const auto shared = allocator.shareIpcHandle(address);
    if (shared.handle.size() > capacity) throw std::length_error("the handle is longer than its buffer");
    std::copy(shared.handle.begin(), shared.handle.end(), handle);
    *offset = shared.offset;
    return shared.handle.size();
  });
}
// The address at which another process's handle is mapped here, until this process ends; null on an error.
ONESIDED_PROBE void* probe_import_handle(const char* handle, std::uint64_t length) {
  return guarded([&](NPUAllocator& allocator) -> void* {
    auto* kept = new std::shared_ptr<void>(allocator.getIpcDevPtr(std::string(handle, length)));
    return kept->get();
  });
}

ONESIDED_PROBE int probe_is_safe(void* data) {
  return guarded([&](NPUAllocator& allocator) -> int { return allocator.checkBlockIsSafe(data_of(data)); });
}
ONESIDED_PROBE void probe_mark_all_unsafe(int device) {
  guarded([&](NPUAllocator& allocator) { allocator.markAllBlockUnsafe(device); });
}
ONESIDED_PROBE void probe_mark_safe(void* data) {
  guarded([&](NPUAllocator& allocator) { allocator.updateBlockToSafe(data_of(data)); });
}
ONESIDED_PROBE int probe_memory_error_in_pools(int device) {
  return guarded([&](NPUAllocator& allocator) -> int { return allocator.checkUceInMemPool(device); });
}
ONESIDED_PROBE void probe_clean_events() {
  guarded([&](NPUAllocator& allocator) { allocator.cleanEvent(); });
}

// Checkpoints a pool and restores it immediately.
ONESIDED_PROBE void probe_checkpoint(int device, std::uint64_t id_first, std::uint64_t id_second) {
  guarded([&](NPUAllocator& allocator) {
    const auto index = static_cast<c10::DeviceIndex>(device);
    allocator.setCheckpointPoolState(index, allocator.getCheckpointState(index, {id_first, id_second}));
  });
}
ONESIDED_PROBE int probe_live_blocks_are(int device, std::uint64_t id_first, std::uint64_t id_second,
                                         void* const* addresses, std::uint64_t count) {
  return guarded([&](NPUAllocator& allocator) -> int {
    const std::unordered_set<void*> expected(addresses, addresses + count);
    return allocator.checkPoolLiveAllocations(static_cast<c10::DeviceIndex>(device), {id_first, id_second}, expected);
  });
}
ONESIDED_PROBE void probe_capture(int device, int begins) {
  guarded([&](NPUAllocator& allocator) {
    const auto index = static_cast<c10::DeviceIndex>(device);
    begins ? device_allocator(&allocator).markCaptureBegin(index) : device_allocator(&allocator).markCaptureEnd(index);
  });
}
