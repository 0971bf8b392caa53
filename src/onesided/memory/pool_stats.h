// The statistics of torch.cuda.memory_stats for one pool, at the cost of a few additions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace onesided {

// A quantity over time. A value.
struct Counter {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  // sum of all increases
  std::int64_t freed = 0;      // sum of all decreases

  void increase(std::uint64_t amount) {
    current += static_cast<std::int64_t>(amount);
    allocated += static_cast<std::int64_t>(amount);
    peak = std::max(peak, current);
  }
  void decrease(std::uint64_t amount) {
    current -= static_cast<std::int64_t>(amount);
    freed += static_cast<std::int64_t>(amount);
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
  Counter& operator+=(const Counter& other);
};

// Statistics of one pool, or a sum over pools. Lengths are charged lengths unless stated otherwise. A value.
struct PoolStats {
  // Counts.
  Counter allocation;  // held by callers
  Counter segment;
  Counter active;          // held, or freed but possibly still used by a stream
  Counter inactive_split;  // free blocks of segments that are partly in use
  // The same in bytes.
  Counter allocated_bytes;
  Counter reserved_bytes;  // of the device: usable and overhead
  Counter active_bytes;
  Counter inactive_split_bytes;
  Counter requested_bytes;             // as requested; internal fragmentation = allocated_bytes - requested_bytes
  Counter overhead_bytes;              // skipped prefixes and unusable tails of segments
  std::int64_t num_alloc_retries = 0;  // the source refused, so other memory was searched
  std::int64_t num_ooms = 0;           // reported to the caller
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;

  void reset_peak();
  void reset_accumulated();
  PoolStats& operator+=(const PoolStats& other);
};

}  // namespace onesided
