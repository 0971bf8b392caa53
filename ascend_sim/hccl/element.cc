#include "ascend_sim/hccl/element.h"

#include <bit>
#include <cmath>
#include <type_traits>

#include "onesided/base/check.h"

namespace onesided::sim::hccl {
namespace {

// Elements in half precision travel through fp32. Without branches, so that the compiler makes vectors of the loops.
struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

float widen(Half value) {
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  // The exponent is moved by a multiplication, which also normalises what is subnormal in fp16.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t special = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  return std::bit_cast<float>((magnitude >= 0x7c00u ? special : finite) | sign);
}

Half narrow_to(Half, float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  const std::uint32_t normal = (rounded - 0x38000000u) >> 13;
  // Below 2^-14: adding 0.5 leaves the subnormal's bits, rounded by the addition itself, at the bottom.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = rounded >= 0x47800000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? 0x7e00u : result;
  return {static_cast<std::uint16_t>(result | sign)};
}

float widen(Brain value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

Brain narrow_to(Brain, float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded)};
}

template <typename T>
constexpr bool kHalf = std::is_same_v<T, Half> || std::is_same_v<T, Brain>;

template <ReduceOp Op, typename T>
T combine(T a, T b) {
  if constexpr (kHalf<T>) {
    return narrow_to(T{}, combine<Op, float>(widen(a), widen(b)));
  } else if constexpr (std::is_floating_point_v<T>) {
    if constexpr (Op == ReduceOp::kSum) return a + b;
    if constexpr (Op == ReduceOp::kProd) return a * b;
    if constexpr (Op == ReduceOp::kMax) return a != a || a > b ? a : b;  // a NaN in b fails both comparisons
    if constexpr (Op == ReduceOp::kMin) return a != a || a < b ? a : b;
  } else {
    // Products of narrow types would be promoted to int and could overflow there.
    using Wide = std::conditional_t<sizeof(T) <= 4, std::uint32_t, std::uint64_t>;
    if constexpr (Op == ReduceOp::kSum) return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    if constexpr (Op == ReduceOp::kProd) return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    if constexpr (Op == ReduceOp::kMax) return a > b ? a : b;
    if constexpr (Op == ReduceOp::kMin) return a < b ? a : b;
  }
}

template <ReduceOp Op, typename T>
void reduce_loop(T* to, const T* a, const T* b, std::uint64_t count) {
  // `to` is one of the sources or apart from both: each element is read before it is written either way.
#pragma GCC ivdep
  for (std::uint64_t i = 0; i < count; ++i) to[i] = combine<Op, T>(a[i], b[i]);
}

template <typename T>
void reduce_typed(void* to, const void* a, const void* b, std::uint64_t count, ReduceOp op) {
  auto* out = static_cast<T*>(to);
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  switch (op) {
    case ReduceOp::kSum: return reduce_loop<ReduceOp::kSum, T>(out, left, right, count);
    case ReduceOp::kProd: return reduce_loop<ReduceOp::kProd, T>(out, left, right, count);
    case ReduceOp::kMax: return reduce_loop<ReduceOp::kMax, T>(out, left, right, count);
    case ReduceOp::kMin: return reduce_loop<ReduceOp::kMin, T>(out, left, right, count);
  }
}

struct Facts {
  std::uint64_t nbytes;
  std::string_view name;
  void (*reduce)(void*, const void*, const void*, std::uint64_t, ReduceOp);
};

Facts facts_of(std::int32_t data_type) {
  switch (static_cast<DataType>(data_type)) {
    case DataType::kInt8: return {1, "int8", &reduce_typed<std::int8_t>};
    case DataType::kInt16: return {2, "int16", &reduce_typed<std::int16_t>};
    case DataType::kInt32: return {4, "int32", &reduce_typed<std::int32_t>};
    case DataType::kInt64: return {8, "int64", &reduce_typed<std::int64_t>};
    case DataType::kUint8: return {1, "uint8", &reduce_typed<std::uint8_t>};
    case DataType::kUint16: return {2, "uint16", &reduce_typed<std::uint16_t>};
    case DataType::kUint32: return {4, "uint32", &reduce_typed<std::uint32_t>};
    case DataType::kUint64: return {8, "uint64", &reduce_typed<std::uint64_t>};
    case DataType::kFp16: return {2, "fp16", &reduce_typed<Half>};
    case DataType::kBfp16: return {2, "bfp16", &reduce_typed<Brain>};
    case DataType::kFp32: return {4, "fp32", &reduce_typed<float>};
    case DataType::kFp64: return {8, "fp64", &reduce_typed<double>};
    case DataType::kInt128: return {16, "int128", nullptr};
    case DataType::kHif8: return {1, "hif8", nullptr};
    case DataType::kFp8E4m3: return {1, "fp8e4m3", nullptr};
    case DataType::kFp8E5m2: return {1, "fp8e5m2", nullptr};
    case DataType::kFp8E8m0: return {1, "fp8e8m0", nullptr};
  }
  return {0, "unknown type", nullptr};
}

}  // namespace

std::uint64_t element_bytes(std::int32_t data_type) { return facts_of(data_type).nbytes; }
std::string_view element_name(std::int32_t data_type) { return facts_of(data_type).name; }

std::string_view reduce_name(std::int32_t op) {
  switch (static_cast<ReduceOp>(op)) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kProd: return "prod";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
  }
  return "unknown reduction";
}

bool reducible(std::int32_t data_type, std::int32_t op) {
  return facts_of(data_type).reduce != nullptr && op >= 0 && op <= static_cast<std::int32_t>(ReduceOp::kMin);
}

void reduce_elements(void* to, const void* a, const void* b, std::uint64_t count, std::int32_t data_type,
                     std::int32_t op) {
  ONESIDED_CHECK(reducible(data_type, op), "{} of {}", reduce_name(op), element_name(data_type));
  facts_of(data_type).reduce(to, a, b, count, static_cast<ReduceOp>(op));
}

}  // namespace onesided::sim::hccl
