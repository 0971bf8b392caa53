// Conversions between element types, with PyTorch's CPU results.
#pragma once

#include <cstdint>

#include "ascend_sim/ops/operator.h"

namespace onesided::sim {

// Converts `count` elements. Null for a pair of types that has no conversion here.
using CastLoop = void (*)(std::byte* to, const std::byte* from, std::int64_t count);
CastLoop find_cast(DataType to, DataType from);

// Bit patterns, rounded to nearest even.
std::uint16_t half_from_float(float value);
float float_from_half(std::uint16_t bits);
std::uint16_t bfloat_from_float(float value);
float float_from_bfloat(std::uint16_t bits);

}  // namespace onesided::sim
