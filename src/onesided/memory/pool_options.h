// Everything that can be chosen about a pool, its limits, and the one formula by which it grows. The numbers are
// documented in docs/aligned_pools.md; change them there too.
#pragma once

#include <cstdint>
#include <optional>

#include "onesided/base/align.h"
#include "onesided/base/result.h"

namespace onesided {

// A value. All lengths in bytes; 0 means "no limit" or "none" where it says so.
struct PoolOptions {
  // Every address is a multiple of it, every charge too. Power of two, device page .. 1 GiB.
  std::uint64_t alignment = kAscendPageBytes;
  // Small pools grow in steps of a quarter of what they hold, up to this.
  std::uint64_t segment_bytes = 32 * kMiB;
  // Large pools grow in steps of 1/128 of what they hold, up to this: few segments, under 1 % ever idle.
  std::uint64_t segment_bytes_max = 1 * kGiB;
  // Hard limit of what the pool holds of the device. 0: none.
  std::uint64_t max_bytes = 0;
  // Taken from the device at construction, as one segment, and given back like any other. 0: nothing.
  std::uint64_t preallocate_bytes = 0;
  // Above this share of max_bytes the pool gives idle segments back, least recently used first, before it grows.
  // 0: never; otherwise within (0, 1] and needs max_bytes.
  double gc_threshold = 0;
  // Each allocation has a segment of its own.
  bool no_split = false;
  // Readable bytes to keep after the last block of a segment, for kernels that read past the end. Neither block nor
  // charge. Nothing: what the source says it needs.
  std::optional<std::uint64_t> guard_bytes = std::nullopt;
};

inline constexpr std::uint64_t kMaxPoolAlignment = 1 * kGiB;

// PARAM_INVALID with the value and the rule in the text.
Result<void> check_alignment(std::uint64_t alignment, std::uint64_t page_bytes);
Result<void> check_options(const PoolOptions& options, std::uint64_t page_bytes);

// Usable length of the next segment of a pool that holds `reserved` bytes, for a request charged `charged` bytes: never
// less than the charge, a multiple of it (so that equal requests leave no rest), and never a large share of the pool.
std::uint64_t next_segment_bytes(const PoolOptions& options, std::uint64_t reserved, std::uint64_t charged);

}  // namespace onesided
