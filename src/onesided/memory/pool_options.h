// The options of a pool, their limits, and the formula by which it grows. The numbers are also in
// docs/aligned_pools.md; change both.
#pragma once

#include <cstdint>
#include <optional>

#include "onesided/base/align.h"
#include "onesided/base/result.h"

namespace onesided {

// A value. All lengths in bytes; where stated, 0 means "no limit" or "none".
struct PoolOptions {
  // Every address and every charge is a multiple of it. A power of two, device page .. 1 GiB.
  std::uint64_t alignment = kAscendPageBytes;
  // Small pools grow in steps of a quarter of their size, up to this step.
  std::uint64_t segment_bytes = 32 * kMiB;
  // Large pools grow in steps of 1/128 of their size, up to this step: few segments, and less than 1 % is idle after
  // growing.
  std::uint64_t segment_bytes_max = 1 * kGiB;
  // Hard limit of the pool's device memory. 0: none.
  std::uint64_t max_bytes = 0;
  // Allocated at construction as one segment, and freed like any other. 0: none.
  std::uint64_t preallocate_bytes = 0;
  // Above this share of max_bytes the pool frees idle segments, least recently used first, before it grows. 0: never;
  // otherwise within (0, 1], and max_bytes must be set.
  double gc_threshold = 0;
  // Each allocation gets a separate segment.
  bool no_split = false;
  // Readable bytes to keep after the last block of a segment, for kernels that read past the end. Neither part of a
  // block nor charged. std::nullopt: as the source requires.
  std::optional<std::uint64_t> guard_bytes = std::nullopt;
};

inline constexpr std::uint64_t kMaxPoolAlignment = 1 * kGiB;

// PARAM_INVALID with the value and the rule in the text.
Result<void> check_alignment(std::uint64_t alignment, std::uint64_t page_bytes);
Result<void> check_options(const PoolOptions& options, std::uint64_t page_bytes);

// Usable length of the next segment of a pool that holds `reserved` bytes, for a request charged `charged` bytes: at
// least the charge, a multiple of it (so that equal requests leave no remainder), and never a large share of the pool.
std::uint64_t next_segment_bytes(const PoolOptions& options, std::uint64_t reserved, std::uint64_t charged);

}  // namespace onesided
