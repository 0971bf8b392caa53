#include "onesided/memory/pool_options.h"

#include <fmt/format.h>

#include <algorithm>

namespace onesided {

Result<void> check_alignment(std::uint64_t alignment, std::uint64_t page_bytes) {
  if (is_power_of_two(alignment) && alignment >= page_bytes && alignment <= kMaxPoolAlignment) return {};
  return Error{
      Status::kParamInvalid,
      fmt::format("sub_block_alignment is {}: it must be a power of two from {} (the device's page) to {} (1 GiB)",
                  alignment, page_bytes, kMaxPoolAlignment)};
}

Result<void> check_options(const PoolOptions& options, std::uint64_t page_bytes) {
  ONESIDED_TRY(check_alignment(options.alignment, page_bytes));
  if (options.segment_bytes == 0 || options.segment_bytes_max < options.segment_bytes) {
    return Error{
        Status::kParamInvalid,
        fmt::format("segment_bytes is {} and segment_bytes_max {}: the first must be at least 1 and not above the "
                    "second",
                    options.segment_bytes, options.segment_bytes_max)};
  }
  if (!(options.gc_threshold >= 0 && options.gc_threshold <= 1)) {
    return Error{Status::kParamInvalid,
                 fmt::format("gc_threshold is {}: it must lie within 0 .. 1", options.gc_threshold)};
  }
  if (options.gc_threshold > 0 && options.max_bytes == 0) {
    return Error{Status::kParamInvalid, "gc_threshold is a share of max_bytes: set max_bytes too"};
  }
  if (options.max_bytes != 0 && options.preallocate_bytes > options.max_bytes) {
    return Error{Status::kParamInvalid, fmt::format("preallocate_bytes {} is more than max_bytes {}",
                                                    options.preallocate_bytes, options.max_bytes)};
  }
  if (options.guard_bytes.value_or(0) > kMiB) {
    return Error{Status::kParamInvalid, fmt::format("guard_bytes is {}: the limit is 1 MiB", *options.guard_bytes)};
  }
  return {};
}

std::uint64_t next_segment_bytes(const PoolOptions& options, std::uint64_t reserved, std::uint64_t charged) {
  if (options.no_split) return charged;
  const std::uint64_t while_small = std::min(reserved / 4, options.segment_bytes);
  const std::uint64_t while_large = std::min(reserved / 128, options.segment_bytes_max);
  const std::uint64_t target = std::max(while_small, while_large);
  return std::max(charged, target / charged * charged);
}

}  // namespace onesided
