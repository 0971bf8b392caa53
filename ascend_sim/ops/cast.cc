#include "ascend_sim/ops/cast.h"

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

namespace onesided::sim {

float float_from_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float tiny = std::ldexp(static_cast<float>(mantissa), -24);  // subnormal: exact
  return sign ? -tiny : tiny;
}

std::uint16_t half_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to infinity
  if (magnitude < 0x38800000u) {                        // subnormal: one unit is 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 16777216.0f;
    return sign | static_cast<std::uint16_t>(std::nearbyint(scaled));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}

float float_from_bfloat(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t bfloat_from_float(float value) {
  if (std::isnan(value)) return 0x7fc0u;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

namespace {

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;

// Half kinds compute as float, everything else as itself.
template <typename T>
auto widened(const T& value) {
  if constexpr (std::is_same_v<T, Half>)
    return float_from_half(value.bits);
  else if constexpr (std::is_same_v<T, Bfloat>)
    return float_from_bfloat(value.bits);
  else
    return value;
}

// Out of range (and NaN) has no value in C++; here it is what x86 answers: the lowest number of the width used.
template <typename To, typename From>
To integer_from(From value) {
  using Step = std::conditional_t<std::is_same_v<To, std::int32_t>, std::int32_t, std::int64_t>;
  if constexpr (std::is_same_v<To, std::uint64_t>) {
    constexpr From kHalfRange = static_cast<From>(9223372036854775808.0);
    if (value >= kHalfRange && value < 2 * kHalfRange) {
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(value - kHalfRange)) ^ (1ull << 63);
    }
  }
  constexpr From kLow = static_cast<From>(std::numeric_limits<Step>::min());
  if (!(value >= kLow && value < -kLow)) return static_cast<To>(std::numeric_limits<Step>::min());
  return static_cast<To>(static_cast<Step>(value));
}

template <typename To, typename From>
To convert(const From& raw) {
  const auto value = widened(raw);
  using Value = std::remove_const_t<decltype(value)>;
  if constexpr (std::is_same_v<To, From>)
    return raw;
  else if constexpr (kIsComplex<Value>) {
    if constexpr (kIsComplex<To>)
      return To(static_cast<typename To::value_type>(value.real()), static_cast<typename To::value_type>(value.imag()));
    else if constexpr (std::is_same_v<To, bool>)
      return value.real() != 0 || value.imag() != 0;
    else
      return convert<To>(value.real());
  } else if constexpr (kIsComplex<To>)
    return To(static_cast<typename To::value_type>(value), 0);
  else if constexpr (std::is_same_v<To, bool>)
    return value != Value{};
  else if constexpr (std::is_same_v<To, Half>)
    return Half{half_from_float(static_cast<float>(value))};
  else if constexpr (std::is_same_v<To, Bfloat>)
    return Bfloat{bfloat_from_float(static_cast<float>(value))};
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<Value>)
    return integer_from<To>(value);
  else
    return static_cast<To>(value);
}

template <typename To, typename From>
void cast_loop(std::byte* to, const std::byte* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    if constexpr (std::is_same_v<From, bool>) {
      value = from[i] != std::byte{0};  // whatever lies there, a bool is never anything but 0 or 1
    } else {
      std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
    }
    const To result = convert<To>(value);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &result, sizeof(To));
  }
}

template <typename To>
CastLoop cast_to(DataType from) {
  switch (from) {
    case DataType::kFloat: return cast_loop<To, float>;
    case DataType::kFloat16: return cast_loop<To, Half>;
    case DataType::kBfloat16: return cast_loop<To, Bfloat>;
    case DataType::kDouble: return cast_loop<To, double>;
    case DataType::kInt8: return cast_loop<To, std::int8_t>;
    case DataType::kInt16: return cast_loop<To, std::int16_t>;
    case DataType::kInt32: return cast_loop<To, std::int32_t>;
    case DataType::kInt64: return cast_loop<To, std::int64_t>;
    case DataType::kUint8: return cast_loop<To, std::uint8_t>;
    case DataType::kUint16: return cast_loop<To, std::uint16_t>;
    case DataType::kUint32: return cast_loop<To, std::uint32_t>;
    case DataType::kUint64: return cast_loop<To, std::uint64_t>;
    case DataType::kBool: return cast_loop<To, bool>;
    case DataType::kComplex64: return cast_loop<To, std::complex<float>>;
    case DataType::kComplex128: return cast_loop<To, std::complex<double>>;
    case DataType::kComplex32:
    case DataType::kHifloat8:
    case DataType::kFloat8E5m2:
    case DataType::kFloat8E4m3fn: break;
  }
  return nullptr;
}

}  // namespace

CastLoop find_cast(DataType to, DataType from) {
  switch (to) {
    case DataType::kFloat: return cast_to<float>(from);
    case DataType::kFloat16: return cast_to<Half>(from);
    case DataType::kBfloat16: return cast_to<Bfloat>(from);
    case DataType::kDouble: return cast_to<double>(from);
    case DataType::kInt8: return cast_to<std::int8_t>(from);
    case DataType::kInt16: return cast_to<std::int16_t>(from);
    case DataType::kInt32: return cast_to<std::int32_t>(from);
    case DataType::kInt64: return cast_to<std::int64_t>(from);
    case DataType::kUint8: return cast_to<std::uint8_t>(from);
    case DataType::kUint16: return cast_to<std::uint16_t>(from);
    case DataType::kUint32: return cast_to<std::uint32_t>(from);
    case DataType::kUint64: return cast_to<std::uint64_t>(from);
    case DataType::kBool: return cast_to<bool>(from);
    case DataType::kComplex64: return cast_to<std::complex<float>>(from);
    case DataType::kComplex128: return cast_to<std::complex<double>>(from);
    case DataType::kComplex32:
    case DataType::kHifloat8:
    case DataType::kFloat8E5m2:
    case DataType::kFloat8E4m3fn: break;
  }
  return nullptr;
}

}  // namespace onesided::sim
