// For benchmarks: an allocation trace in C++ on torch_npu's current allocator (native, decorated, or with an aligned
// pool open). One malloc and free take well under a microsecond; through Python they would take three.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include "torch_npu/csrc/core/npu/NPUCachingAllocator.h"

namespace {

// Frees the block that was allocated `kLive` steps ago, then allocates: a steady state with reuse.
constexpr std::size_t kLive = 32;

void run_pairs(const std::uint64_t* sizes, std::size_t count, aclrtStream stream) {
  auto* allocator = c10_npu::NPUCachingAllocator::allocator.load();
  void* live[kLive] = {};
  for (std::size_t i = 0; i < count; ++i) {
    void*& slot = live[i % kLive];
    if (slot) allocator->raw_delete(slot);
    slot = allocator->raw_alloc_with_stream(sizes[i], stream);
  }
  for (void* block : live) {
    if (block) allocator->raw_delete(block);
  }
}

}  // namespace

// Nanoseconds for one malloc and one free, with `threads` threads running the trace concurrently on one device and
// stream.
extern "C" __attribute__((visibility("default"))) double alloc_trace_ns(const std::uint64_t* sizes, std::uint64_t count,
                                                                        int threads, int device, void* stream) {
  using Clock = std::chrono::steady_clock;
  std::latch ready(threads);
  std::vector<std::pair<Clock::time_point, Clock::time_point>> spans(static_cast<std::size_t>(threads));
  std::vector<std::thread> workers;
  for (auto& span : spans) {
    workers.emplace_back([&] {
      c10_npu::SetDevice(static_cast<c10::DeviceIndex>(device));
      ready.arrive_and_wait();
      span.first = Clock::now();
      run_pairs(sizes, count, stream);
      span.second = Clock::now();
    });
  }
  for (std::thread& worker : workers) worker.join();
  auto [start, end] = spans.front();
  for (const auto& span : spans) {
    start = std::min(start, span.first);
    end = std::max(end, span.second);
  }
  const double pairs = static_cast<double>(count) * threads;
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count()) / pairs;
}

// Processor nanoseconds of the calling thread for one malloc and one free. Other processes do not count, so a
// difference of one percent can be measured.
extern "C" __attribute__((visibility("default"))) double alloc_trace_processor_ns(const std::uint64_t* sizes,
                                                                                  std::uint64_t count, void* stream) {
  const auto now = [] {
    timespec spent{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return static_cast<double>(spent.tv_sec) * 1e9 + static_cast<double>(spent.tv_nsec);
  };
  const double start = now();
  run_pairs(sizes, count, stream);
  return (now() - start) / static_cast<double>(count);
}

// Only for inline code in the wheel's headers that this file never calls.
#pragma GCC visibility push(hidden)
std::string formatErrorCode(SubModule, ErrCode) { return ""; }
#pragma GCC visibility pop
