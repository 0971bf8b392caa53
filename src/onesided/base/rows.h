// Rows of bytes at a fixed distance: the arithmetic of strided memory in one place, and none of it may wrap around.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "onesided/base/align.h"

namespace onesided {

// Most rows of one strided item: links that know no rows see each row as a copy of its own.
inline constexpr std::uint64_t kMaxRows = 1ULL << 20;

// From the first byte of the first row to behind the last byte of the last one. `row_bytes` 0: contiguous. Nothing when
// `nbytes` is no whole number of rows, there are more than kMaxRows, rows overlap, or a product does not fit 64 bits.
constexpr std::optional<std::uint64_t> checked_span(std::uint64_t nbytes, std::uint64_t row_bytes,
                                                    std::uint64_t pitch) {
  if (row_bytes == 0) return nbytes;
  const std::uint64_t rows = nbytes / row_bytes;
  if (nbytes == 0 || nbytes % row_bytes != 0 || rows > kMaxRows) return std::nullopt;
  if (rows == 1) return row_bytes;
  if (pitch < row_bytes || pitch > (std::numeric_limits<std::uint64_t>::max() - row_bytes) / (rows - 1))
    return std::nullopt;
  return (rows - 1) * pitch + row_bytes;
}

// The same of values that were checked.
constexpr std::uint64_t span_of(std::uint64_t nbytes, std::uint64_t row_bytes, std::uint64_t pitch) {
  return row_bytes == 0 ? nbytes : (nbytes / row_bytes - 1) * pitch + row_bytes;
}

// Calls run(address, nbytes) for each contiguous run of `nbytes` bytes in rows; rows that touch are one run.
template <typename Run>
void each_run(std::uint64_t address, std::uint64_t nbytes, std::uint64_t row_bytes, std::uint64_t pitch, Run run) {
  if (row_bytes == 0 || pitch == row_bytes || nbytes <= row_bytes) return run(address, nbytes);
  for (std::uint64_t done = 0; done < nbytes; done += row_bytes, address += pitch)
    run(address, std::min(row_bytes, nbytes - done));
}

}  // namespace onesided
