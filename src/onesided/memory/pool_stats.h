// The numbers users know from torch.cuda.memory_stats, kept for one pool at the price of a few additions.
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

// One pool's, or a sum over pools. Lengths are charged lengths except where it says otherwise. A value.
struct PoolStats {
  // Numbers of things.
  Counter allocation;  // held by somebody
  Counter segment;
  Counter active;          // held, or given back but perhaps still used by a stream
  Counter inactive_split;  // free blocks of segments that are partly in use
  // Bytes of the same.
  Counter allocated_bytes;
  Counter reserved_bytes;  // of the device: usable and overhead
  Counter active_bytes;
  Counter inactive_split_bytes;
  Counter requested_bytes;             // as asked; internal fragmentation = allocated_bytes - requested_bytes
  Counter overhead_bytes;              // skipped prefixes and unusable tails of segments
  std::int64_t num_alloc_retries = 0;  // the source said no, memory was found elsewhere in time or not
  std::int64_t num_ooms = 0;           // told to the caller
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;

  void reset_peak();
  void reset_accumulated();
  PoolStats& operator+=(const PoolStats& other);
};

}  // namespace onesided
