// What the elements of a collective are: their sizes, and how two of them become one.
#pragma once

#include <cstdint>
#include <string_view>

#include "ascend_sim/hccl/abi.h"

namespace onesided::sim::hccl {

// Far above what any device holds, and small enough that bytes of all ranks can be added up.
inline constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 44;

// 0: no such type.
std::uint64_t element_bytes(std::int32_t data_type);
// "fp16"; "unknown type" for others.
std::string_view element_name(std::int32_t data_type);
std::string_view reduce_name(std::int32_t op);
// Sum, product, maximum and minimum exist for integers of up to 64 bits and for fp16, bfp16, fp32 and fp64. Types of 8
// bits that are no integers, and int128, are only moved.
bool reducible(std::int32_t data_type, std::int32_t op);

// to[i] = a[i] op b[i] for `count` elements of a reducible type. `to` may be `a` or `b`. fp16 and bfp16 are computed in
// fp32 and rounded to nearest, ties to even, at each step. Integers wrap. A NaN on either side of max or min gives NaN.
void reduce_elements(void* to, const void* a, const void* b, std::uint64_t count, std::int32_t data_type,
                     std::int32_t op);

}  // namespace onesided::sim::hccl
