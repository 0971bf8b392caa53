// Slicing, transposing, broadcasting and strided views are one thing: a copy between two strided boxes of equal
// shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ascend_sim/ops/operator.h"

namespace onesided::sim {

// Where the elements of a box lie: element `index` at data + (offset + sum(index[i] * strides[i])) elements. A value.
struct StridedBox {
  std::byte* data = nullptr;
  std::int64_t offset = 0;
  Dims strides;
};

// Strides of a dense row-major tensor.
Dims dense_strides(const Dims& dims);

// Every element of the box lies inside a buffer of buffer_bytes. True for an empty box.
bool box_fits(const Dims& sizes, const StridedBox& box, std::size_t element_bytes, std::uint64_t buffer_bytes);

// Copies a box of `sizes` element by element. The boxes were checked and do not overlap, or are the same.
void copy_strided(const Dims& sizes, const StridedBox& to, const StridedBox& from, std::size_t element_bytes);

}  // namespace onesided::sim
