#include "ascend_sim/ops/operator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>

#include "ascend_sim/ops/cast.h"
#include "ascend_sim/ops/strided.h"

namespace onesided::sim {
namespace {

// Bytes with a shape: what a test hands to an operator.
struct Tensor {
  DataType type = DataType::kInt32;
  Dims dims;
  std::vector<std::byte> bytes;

  Operand operand() { return Operand{type, dims, bytes.data(), bytes.size()}; }
  template <typename T>
  std::vector<T> values() const {
    std::vector<T> out(bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
    return out;
  }
};

template <typename T>
Tensor tensor(DataType type, Dims dims, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {type, std::move(dims), {bytes.begin(), bytes.end()}};
}

Tensor numbers(Dims dims) {
  std::int64_t count = 1;
  for (const auto dim : dims) count *= dim;
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<std::int32_t>(i);
  return tensor(DataType::kInt32, std::move(dims), values);
}

Tensor shape(const Dims& values) {
  return tensor(DataType::kInt64, {static_cast<std::int64_t>(values.size())}, values);
}

Tensor scalar(std::int64_t value) { return tensor(DataType::kInt64, {}, std::vector<std::int64_t>{value}); }

Tensor uninitialized(DataType type, Dims dims) {
  std::int64_t count = 1;
  for (const auto dim : dims) count *= dim;
  return Tensor{type, std::move(dims), std::vector<std::byte>(static_cast<std::size_t>(count) * element_bytes(type))};
}

Status run(const char* name, std::vector<Tensor*> inputs, Tensor& output, const Attributes* attributes = nullptr) {
  OperatorCall call{name, {}, {output.operand()}, attributes};
  for (Tensor* input : inputs) call.inputs.push_back(input->operand());
  auto work = prepare_operator(call);
  if (!work.ok()) return work.status();
  (*work)();
  return Status::kSuccess;
}

TEST(Operators, UnknownNamesAreNamed) {
  Tensor out = uninitialized(DataType::kInt32, {1});
  EXPECT_EQ(run("Conv9D", {}, out), Status::kNotFound);
  const auto refused = prepare_operator(OperatorCall{"Conv9D", {}, {}, nullptr});
  EXPECT_NE(refused.error().text().find("Conv9D"), std::string::npos);
}

TEST(Operators, TransposeAndSliceAndBroadcast) {
  Tensor in = numbers({2, 3});
  Tensor out = uninitialized(DataType::kInt32, {3, 2});
  Tensor permutation = shape({1, 0});
  ASSERT_EQ(run("Transpose", {&in, &permutation}, out), Status::kSuccess);
  EXPECT_EQ(out.values<int>(), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  Tensor begin = shape({0, 1});
  Tensor size = shape({2, -1});
  Tensor sliced = uninitialized(DataType::kInt32, {2, 2});
  ASSERT_EQ(run("Slice", {&in, &begin, &size}, sliced), Status::kSuccess);
  EXPECT_EQ(sliced.values<int>(), (std::vector<int>{1, 2, 4, 5}));
  Tensor row = numbers({1, 3});
  Tensor wide = uninitialized(DataType::kInt32, {2, 2, 3});
  Tensor target = shape({2, 2, 3});
  ASSERT_EQ(run("BroadcastTo", {&row, &target}, wide), Status::kSuccess);
  EXPECT_EQ(wide.values<int>(), (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST(Operators, StridedViewsReadAndWrite) {
  Tensor in = numbers({4, 4});
  Tensor size = shape({2, 2});
  Tensor strides = shape({8, 2});
  Tensor offset = scalar(1);
  Tensor out = uninitialized(DataType::kInt32, {2, 2});
  ASSERT_EQ(run("AsStrided", {&in, &size, &strides, &offset}, out), Status::kSuccess);
  EXPECT_EQ(out.values<int>(), (std::vector<int>{1, 3, 9, 11}));
  Tensor target = uninitialized(DataType::kInt32, {4, 4});
  Tensor source_strides = shape({2, 1});
  Tensor zero = scalar(0);
  ASSERT_EQ(run("ViewCopy", {&target, &size, &strides, &offset, &out, &size, &source_strides, &zero}, target),
            Status::kSuccess);
  EXPECT_EQ(target.values<int>()[1], 1);
  EXPECT_EQ(target.values<int>()[11], 11);
  EXPECT_EQ(target.values<int>()[0], 0);
  Tensor one = shape({1});
  Tensor step = shape({1});
  ASSERT_EQ(run("ViewCopy", {&target, &size, &strides, &zero, &in, &one, &step, &offset}, target), Status::kSuccess);
  EXPECT_EQ(target.values<int>()[10], 1) << "the source broadcasts";
}

TEST(Operators, FillAndJoin) {
  Tensor dims = shape({3});
  Tensor value = tensor(DataType::kBfloat16, {}, std::vector<std::uint16_t>{0x4040});
  Tensor out = uninitialized(DataType::kBfloat16, {3});
  ASSERT_EQ(run("Fill", {&dims, &value}, out), Status::kSuccess);
  EXPECT_EQ(out.values<std::uint16_t>(), (std::vector<std::uint16_t>{0x4040, 0x4040, 0x4040}));
  Tensor ones = uninitialized(DataType::kFloat16, {2});
  ASSERT_EQ(run("OnesLike", {&ones}, ones), Status::kSuccess);
  EXPECT_EQ(ones.values<std::uint16_t>()[1], 0x3c00);
  Tensor a = numbers({2, 1});
  Tensor b = numbers({2, 2});
  Tensor joined = uninitialized(DataType::kInt32, {2, 3});
  Attributes attributes;
  attributes.integers["concat_dim"] = -1;
  ASSERT_EQ(run("ConcatD", {&a, &b}, joined, &attributes), Status::kSuccess);
  EXPECT_EQ(joined.values<int>(), (std::vector<int>{0, 0, 1, 1, 2, 3}));
  Tensor c = numbers({2});
  Tensor packed = uninitialized(DataType::kInt32, {2, 2});
  attributes.integers["axis"] = 1;
  ASSERT_EQ(run("Pack", {&c, &c}, packed, &attributes), Status::kSuccess);
  EXPECT_EQ(packed.values<int>(), (std::vector<int>{0, 0, 1, 1}));
}

TEST(Operators, EmptyTensorsAreFine) {
  Tensor in = numbers({0, 3});
  Tensor out = uninitialized(DataType::kInt32, {3, 0});
  Tensor permutation = shape({1, 0});
  EXPECT_EQ(run("Transpose", {&in, &permutation}, out), Status::kSuccess);
  Tensor size = shape({0, 4});
  Tensor strides = shape({1000, 1000});
  Tensor offset = scalar(1000);
  Tensor none = uninitialized(DataType::kInt32, {0, 4});
  EXPECT_EQ(run("AsStrided", {&in, &size, &strides, &offset}, none), Status::kSuccess);
}

// Whatever a caller asks, memory that is not the tensors' is not touched.
TEST(Operators, RefuseWhatDoesNotFit) {
  Tensor in = numbers({4});
  Tensor out = uninitialized(DataType::kInt32, {4});
  const auto as_strided = [&](Dims sizes, Dims steps, std::int64_t start) {
    Tensor size = shape(sizes);
    Tensor strides = shape(steps);
    Tensor offset = scalar(start);
    return run("AsStrided", {&in, &size, &strides, &offset}, out);
  };
  EXPECT_EQ(as_strided({4}, {1}, 0), Status::kSuccess);
  EXPECT_EQ(as_strided({4}, {1}, 1), Status::kParamInvalid);
  EXPECT_EQ(as_strided({4}, {-1}, 0), Status::kParamInvalid);
  EXPECT_EQ(as_strided({4}, {-1}, 3), Status::kSuccess);
  EXPECT_EQ(as_strided({5}, {0}, 0), Status::kParamInvalid) << "target too small";
  EXPECT_EQ(as_strided({-1}, {1}, 0), Status::kParamInvalid);
  EXPECT_EQ(as_strided({2, 2}, {1}, 0), Status::kParamInvalid);
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(as_strided({2, 2}, {kHuge, kHuge}, 0), Status::kParamInvalid) << "wraps";
  EXPECT_EQ(as_strided({1}, {1}, kHuge), Status::kParamInvalid);
  Tensor twice = shape({0, 0});
  Tensor square = numbers({2, 2});
  EXPECT_EQ(run("Transpose", {&square, &twice}, out), Status::kParamInvalid);
  Tensor lying = numbers({2});
  lying.dims = {1000};
  EXPECT_EQ(run("Identity", {&lying}, out), Status::kParamInvalid) << "a buffer shorter than its shape";
  Tensor half = uninitialized(DataType::kFloat16, {4});
  EXPECT_EQ(run("Identity", {&in}, half), Status::kParamInvalid) << "another type";
}

TEST(Strided, EqualsTheSlowWay) {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 300; ++round) {
    const int rank = pick(0, 4);
    Dims sizes;
    StridedBox to;
    StridedBox from;
    std::int64_t count = 1;
    for (int i = 0; i < rank; ++i) {
      sizes.push_back(pick(1, 4));
      from.strides.push_back(pick(-3, 3));
      count *= sizes.back();
    }
    to.strides = dense_strides(sizes);
    if (pick(0, 1)) from.strides = to.strides;
    from.offset = 40;
    std::vector<std::int16_t> source(100);
    for (auto& value : source) value = static_cast<std::int16_t>(pick(0, 1000));
    std::vector<std::int16_t> target(static_cast<std::size_t>(count), -1);
    from.data = reinterpret_cast<std::byte*>(source.data());
    to.data = reinterpret_cast<std::byte*>(target.data());
    if (!box_fits(sizes, from, 2, source.size() * 2)) continue;
    copy_strided(sizes, to, from, 2);
    for (std::int64_t linear = 0; linear < count; ++linear) {
      std::int64_t at = from.offset;
      std::int64_t rest = linear;
      for (int i = rank; i-- > 0;) {
        at += rest % sizes[i] * from.strides[i];
        rest /= sizes[i];
      }
      ASSERT_EQ(target[linear], source[at]) << "round " << round;
    }
  }
}

TEST(Cast, HalfIsExactBothWays) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = float_from_half(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(half_from_float(value), bits);
  }
  EXPECT_EQ(half_from_float(65519.0f), 0x7bff);
  EXPECT_EQ(half_from_float(65520.0f), 0x7c00) << "rounds to infinity";
  EXPECT_EQ(half_from_float(std::ldexp(1.0f, -25)), 0) << "a tie, to even";
  EXPECT_EQ(half_from_float(std::ldexp(3.0f, -25)), 2) << "a tie, to even";
  EXPECT_EQ(half_from_float(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(float_from_half(half_from_float(std::nanf("")))));
}

TEST(Cast, BfloatRoundsToEven) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = float_from_bfloat(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(bfloat_from_float(value), bits);
  }
  EXPECT_EQ(bfloat_from_float(1.00390625f), 0x3f80) << "a tie, to even";
  EXPECT_EQ(bfloat_from_float(1.01171875f), 0x3f82) << "a tie, to even";
}

TEST(Cast, NumbersKeepTheirMeaning) {
  Tensor in = tensor(DataType::kFloat, {5}, std::vector<float>{-1.9f, 0.0f, 0.5f, 300.0f, std::nanf("")});
  Tensor bytes = uninitialized(DataType::kUint8, {5});
  ASSERT_EQ(run("Cast", {&in}, bytes), Status::kSuccess);
  EXPECT_EQ(bytes.values<std::uint8_t>(), (std::vector<std::uint8_t>{255, 0, 0, 44, 0}));
  Tensor truth = uninitialized(DataType::kBool, {5});
  ASSERT_EQ(run("Cast", {&in}, truth), Status::kSuccess);
  EXPECT_EQ(truth.values<std::uint8_t>(), (std::vector<std::uint8_t>{1, 0, 1, 1, 1}));
  Tensor wide = tensor(DataType::kInt64, {2}, std::vector<std::int64_t>{1ll << 40, -1});
  Tensor narrow = uninitialized(DataType::kInt32, {2});
  ASSERT_EQ(run("Cast", {&wide}, narrow), Status::kSuccess);
  EXPECT_EQ(narrow.values<int>(), (std::vector<int>{0, -1}));
  Tensor fp8 = uninitialized(DataType::kFloat8E5m2, {5});
  EXPECT_EQ(run("Cast", {&in}, fp8), Status::kParamInvalid) << "named, not guessed";
}

}  // namespace
}  // namespace onesided::sim
