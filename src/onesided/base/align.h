// Alignment and range arithmetic with overflow checks.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <optional>

namespace onesided {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;
// Huge page of the Ascend driver: start and length of memory registered for remote access are multiples of it.
inline constexpr std::uint64_t kAscendPageBytes = 2 * kMiB;

constexpr bool is_power_of_two(std::uint64_t value) { return std::has_single_bit(value); }

// `alignment` is a power of two.
constexpr bool is_aligned(std::uint64_t value, std::uint64_t alignment) { return (value & (alignment - 1)) == 0; }

constexpr std::uint64_t align_down(std::uint64_t value, std::uint64_t alignment) { return value & ~(alignment - 1); }

// a + b, or std::nullopt if the sum does not fit 64 bits.
constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  if (b > std::numeric_limits<std::uint64_t>::max() - a) return std::nullopt;
  return a + b;
}

// The smallest multiple of `alignment` (a power of two) that is >= value, or std::nullopt if it does not fit 64 bits.
constexpr std::optional<std::uint64_t> align_up(std::uint64_t value, std::uint64_t alignment) {
  const auto sum = checked_add(value, alignment - 1);
  if (!sum) return std::nullopt;
  return align_down(*sum, alignment);
}

// True if [address, address + nbytes) lies inside [base, base + size). False if a sum overflows.
constexpr bool range_within(std::uint64_t address, std::uint64_t nbytes, std::uint64_t base, std::uint64_t size) {
  const auto end = checked_add(address, nbytes);
  const auto limit = checked_add(base, size);
  return end && limit && address >= base && *end <= *limit;
}

}  // namespace onesided
