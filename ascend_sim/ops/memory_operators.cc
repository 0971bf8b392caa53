#include "ascend_sim/ops/memory_operators.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstring>

#include "ascend_sim/ops/cast.h"
#include "ascend_sim/ops/strided.h"

namespace onesided::sim {
namespace {

Error refused(std::string text) { return Error{Status::kParamInvalid, std::move(text)}; }

Result<void> expect(const OperatorCall& call, std::size_t inputs) {
  if (call.inputs.size() < inputs || call.outputs.size() != 1) {
    return refused(
        fmt::format("{} inputs and {} outputs, not {} and 1", call.inputs.size(), call.outputs.size(), inputs));
  }
  return {};
}

// The integers of a small host tensor.
Result<Dims> integers(const Operand& operand) {
  const CastLoop loop = find_cast(DataType::kInt64, operand.type);
  if (!loop || (operand.type != DataType::kInt32 && operand.type != DataType::kInt64)) {
    return refused(fmt::format("a shape of type {}", type_name(operand.type)));
  }
  Dims values(static_cast<std::size_t>(operand.count()));
  loop(reinterpret_cast<std::byte*>(values.data()), operand.data, operand.count());
  return values;
}

Result<std::int64_t> integer(const Operand& operand) {
  ONESIDED_TRY_ASSIGN(values, integers(operand));
  if (values.size() != 1) return refused(fmt::format("{} integers where one belongs", values.size()));
  return values[0];
}

std::int64_t attribute(const OperatorCall& call, const char* name, std::int64_t fallback) {
  if (!call.attributes) return fallback;
  const auto at = call.attributes->integers.find(name);
  return at == call.attributes->integers.end() ? fallback : at->second;
}

std::int64_t count_of(const Dims& dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  return count;
}

// The checked copy of a box from one operand to another of the same type.
Result<OperatorWork> strided_work(const Dims& sizes, const Operand& to, StridedBox to_box, const Operand& from,
                                  StridedBox from_box) {
  const std::size_t element = element_bytes(to.type);
  if (element == 0 || element != element_bytes(from.type)) {
    return refused(fmt::format("elements of {} into {}", type_name(from.type), type_name(to.type)));
  }
  if (!box_fits(sizes, to_box, element, to.nbytes)) {
    return refused(fmt::format("a box of {} (strides {}, offset {}) does not fit a target of {} bytes", sizes,
                               to_box.strides, to_box.offset, to.nbytes));
  }
  if (!box_fits(sizes, from_box, element, from.nbytes)) {
    return refused(fmt::format("a box of {} (strides {}, offset {}) does not fit a source of {} bytes", sizes,
                               from_box.strides, from_box.offset, from.nbytes));
  }
  to_box.data = to.data;
  from_box.data = from.data;
  return OperatorWork([=, to_box = std::move(to_box), from_box = std::move(from_box)] {
    copy_strided(sizes, to_box, from_box, element);
  });
}

// Strides that read a view of `dims` as if it were of `sizes`: dimensions of one element, and those that are not there,
// stand still.
Result<Dims> broadcast_strides(const Dims& dims, const Dims& strides, const Dims& sizes) {
  const auto differ = [&] { return refused(fmt::format("{} does not broadcast to {}", dims, sizes)); };
  if (dims.size() > sizes.size() || strides.size() != dims.size()) return differ();
  const std::size_t added = sizes.size() - dims.size();
  Dims read(sizes.size(), 0);
  for (std::size_t i = added; i < sizes.size(); ++i) {
    const std::int64_t dim = dims[i - added];
    if (dim != 1 && dim != sizes[i]) return differ();
    if (dim != 1) read[i] = strides[i - added];
  }
  return read;
}

StridedBox dense_box(const Dims& sizes) { return StridedBox{nullptr, 0, dense_strides(sizes)}; }

}  // namespace

Result<OperatorWork> prepare_as_strided(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 4));
  ONESIDED_TRY_ASSIGN(sizes, integers(call.inputs[1]));
  ONESIDED_TRY_ASSIGN(strides, integers(call.inputs[2]));
  ONESIDED_TRY_ASSIGN(offset, integer(call.inputs[3]));
  return strided_work(sizes, call.outputs[0], dense_box(sizes), call.inputs[0], StridedBox{nullptr, offset, strides});
}

Result<OperatorWork> prepare_view_copy(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 8));
  ONESIDED_TRY_ASSIGN(sizes, integers(call.inputs[1]));
  ONESIDED_TRY_ASSIGN(to_strides, integers(call.inputs[2]));
  ONESIDED_TRY_ASSIGN(to_offset, integer(call.inputs[3]));
  ONESIDED_TRY_ASSIGN(from_sizes, integers(call.inputs[5]));
  ONESIDED_TRY_ASSIGN(from_strides, integers(call.inputs[6]));
  ONESIDED_TRY_ASSIGN(from_offset, integer(call.inputs[7]));
  ONESIDED_TRY_ASSIGN(read_strides, broadcast_strides(from_sizes, from_strides, sizes));
  return strided_work(sizes, call.outputs[0], StridedBox{nullptr, to_offset, to_strides}, call.inputs[4],
                      StridedBox{nullptr, from_offset, read_strides});
}

Result<OperatorWork> prepare_slice(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 3));
  ONESIDED_TRY_ASSIGN(offsets, integers(call.inputs[1]));
  ONESIDED_TRY_ASSIGN(sizes, integers(call.inputs[2]));
  const Operand& from = call.inputs[0];
  if (offsets.size() != from.dims.size() || sizes.size() != from.dims.size()) {
    return refused(fmt::format("offsets {} and sizes {} for a tensor of {}", offsets, sizes, from.dims));
  }
  StridedBox box = dense_box(from.dims);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1) sizes[i] = from.dims[i] - offsets[i];
    if (offsets[i] < 0 || sizes[i] < 0 || offsets[i] > from.dims[i] - sizes[i]) {
      return refused(fmt::format("offsets {} and sizes {} leave a tensor of {}", offsets, sizes, from.dims));
    }
    box.offset += offsets[i] * box.strides[i];
  }
  return strided_work(sizes, call.outputs[0], dense_box(sizes), from, box);
}

Result<OperatorWork> prepare_transpose(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 2));
  ONESIDED_TRY_ASSIGN(permutation, integers(call.inputs[1]));
  const Operand& from = call.inputs[0];
  const Dims strides = dense_strides(from.dims);
  Dims sizes;
  StridedBox box;
  std::vector<bool> seen(from.dims.size(), false);
  for (const std::int64_t dim : permutation) {
    if (dim < 0 || dim >= static_cast<std::int64_t>(from.dims.size()) || seen[dim]) {
      return refused(fmt::format("{} is not a permutation of the dimensions {}", permutation, from.dims));
    }
    seen[dim] = true;
    sizes.push_back(from.dims[dim]);
    box.strides.push_back(strides[dim]);
  }
  if (sizes.size() != from.dims.size())
    return refused(fmt::format("{} leaves out dimensions of {}", permutation, from.dims));
  return strided_work(sizes, call.outputs[0], dense_box(sizes), from, box);
}

Result<OperatorWork> prepare_broadcast_to(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 2));
  ONESIDED_TRY_ASSIGN(sizes, integers(call.inputs[1]));
  const Operand& from = call.inputs[0];
  ONESIDED_TRY_ASSIGN(strides, broadcast_strides(from.dims, dense_strides(from.dims), sizes));
  return strided_work(sizes, call.outputs[0], dense_box(sizes), from, StridedBox{nullptr, 0, strides});
}

Result<OperatorWork> prepare_move(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 1));
  const Dims sizes{call.inputs[0].count()};
  return strided_work(sizes, call.outputs[0], dense_box(sizes), call.inputs[0], dense_box(sizes));
}

Result<OperatorWork> prepare_cast(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 1));
  const Operand& from = call.inputs[0];
  const Operand& to = call.outputs[0];
  const CastLoop loop = find_cast(to.type, from.type);
  if (!loop) return refused(fmt::format("no conversion from {} to {}", type_name(from.type), type_name(to.type)));
  const std::int64_t count = from.count();
  if (to.count() != count) return refused(fmt::format("a tensor of {} cast into one of {}", from.dims, to.dims));
  return OperatorWork([=, target = to.data, source = from.data] { loop(target, source, count); });
}

Result<OperatorWork> prepare_fill(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 2));
  ONESIDED_TRY_ASSIGN(sizes, integers(call.inputs[0]));
  const Operand& value = call.inputs[1];
  const Operand& to = call.outputs[0];
  if (value.count() != 1 || value.type != to.type) {
    return refused(
        fmt::format("{} values of {} fill a tensor of {}", value.count(), type_name(value.type), type_name(to.type)));
  }
  return strided_work(sizes, to, dense_box(sizes), value, StridedBox{nullptr, 0, Dims(sizes.size(), 0)});
}

// Paddings: before and after, dimension by dimension, from the first one on.
Result<OperatorWork> prepare_pad(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 3));
  ONESIDED_TRY_ASSIGN(paddings, integers(call.inputs[1]));
  const Operand& from = call.inputs[0];
  const Operand& value = call.inputs[2];
  const Operand& to = call.outputs[0];
  if (call.attributes) {
    const auto mode = call.attributes->strings.find("mode");
    if (mode != call.attributes->strings.end() && mode->second != "constant")
      return refused(fmt::format("mode \"{}\"; only \"constant\" is simulated", mode->second));
  }
  if (attribute(call, "paddings_contiguous", 1) != 1) return refused("paddings that are not contiguous");
  if (paddings.size() != 2 * from.dims.size() || to.dims.size() != from.dims.size())
    return refused(fmt::format("paddings {} for a tensor of {} into one of {}", paddings, from.dims, to.dims));
  if (value.count() != 1 || value.type != to.type) {
    return refused(
        fmt::format("{} values of {} pad a tensor of {}", value.count(), type_name(value.type), type_name(to.type)));
  }
  StridedBox box = dense_box(to.dims);
  for (std::size_t i = 0; i < from.dims.size(); ++i) {
    const std::int64_t before = paddings[2 * i], after = paddings[2 * i + 1];
    if (before < 0 || after < 0 || from.dims[i] + before + after != to.dims[i])
      return refused(fmt::format("paddings {} do not make {} of {}", paddings, to.dims, from.dims));
    box.offset += before * box.strides[i];
  }
  ONESIDED_TRY_ASSIGN(
      fill, strided_work(to.dims, to, dense_box(to.dims), value, StridedBox{nullptr, 0, Dims(to.dims.size(), 0)}));
  ONESIDED_TRY_ASSIGN(copy, strided_work(from.dims, to, box, from, dense_box(from.dims)));
  return OperatorWork([fill = std::move(fill), copy = std::move(copy)] {
    fill();
    copy();
  });
}

Result<OperatorWork> prepare_zeros_like(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 1));
  const Operand& to = call.outputs[0];
  const std::uint64_t nbytes = static_cast<std::uint64_t>(to.count()) * element_bytes(to.type);
  return OperatorWork([=, target = to.data] { std::memset(target, 0, nbytes); });
}

Result<OperatorWork> prepare_ones_like(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 1));
  const Operand& to = call.outputs[0];
  const CastLoop loop = find_cast(to.type, DataType::kInt32);
  if (!loop) return refused(fmt::format("no one of type {}", type_name(to.type)));
  return OperatorWork(
      [=, target = to.data, count = to.count(), element = static_cast<std::int64_t>(element_bytes(to.type))] {
        const std::int32_t one = 1;
        for (std::int64_t i = 0; i < count; ++i)
          loop(target + i * element, reinterpret_cast<const std::byte*>(&one), 1);
      });
}

namespace {

// Tensors side by side along `axis` of the output, each `extent(i)` long there.
Result<OperatorWork> join(const OperatorCall& call, const Dims& to_dims, std::size_t axis,
                          const std::vector<Dims>& parts) {
  const Dims strides = dense_strides(to_dims);
  std::vector<OperatorWork> works;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ONESIDED_TRY_ASSIGN(work, strided_work(parts[i], call.outputs[0], StridedBox{nullptr, at * strides[axis], strides},
                                           call.inputs[i], dense_box(parts[i])));
    works.push_back(std::move(work));
    at += parts[i][axis];
  }
  return OperatorWork([works = std::move(works)] {
    for (const OperatorWork& work : works) work();
  });
}

}  // namespace

Result<OperatorWork> prepare_concat(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 1));
  Dims dims = call.inputs[0].dims;
  std::int64_t axis = attribute(call, "concat_dim", 0);
  if (axis < 0) axis += static_cast<std::int64_t>(dims.size());
  if (axis < 0 || axis >= static_cast<std::int64_t>(dims.size()))
    return refused(fmt::format("no axis {} in {}", axis, dims));
  std::vector<Dims> parts;
  dims[axis] = 0;
  for (const Operand& input : call.inputs) {
    parts.push_back(input.dims);
    if (input.dims.size() != dims.size()) return refused(fmt::format("{} beside {}", input.dims, call.inputs[0].dims));
    dims[axis] += input.dims[axis];
  }
  for (const Dims& part : parts) {
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (static_cast<std::int64_t>(i) != axis && part[i] != dims[i])
        return refused(fmt::format("{} in {}", part, dims));
    }
  }
  return join(call, dims, static_cast<std::size_t>(axis), parts);
}

Result<OperatorWork> prepare_pack(const OperatorCall& call) {
  ONESIDED_TRY(expect(call, 1));
  Dims dims = call.inputs[0].dims;
  std::int64_t axis = attribute(call, "axis", 0);
  if (axis < 0) axis += static_cast<std::int64_t>(dims.size()) + 1;
  if (axis < 0 || axis > static_cast<std::int64_t>(dims.size()))
    return refused(fmt::format("no axis {} beside {}", axis, dims));
  for (const Operand& input : call.inputs) {
    if (input.dims != dims) return refused(fmt::format("{} stacked on {}", input.dims, dims));
  }
  dims.insert(dims.begin() + axis, 1);
  const std::vector<Dims> parts(call.inputs.size(), dims);
  dims[axis] = static_cast<std::int64_t>(call.inputs.size());
  return join(call, dims, static_cast<std::size_t>(axis), parts);
}

std::int64_t Operand::count() const { return count_of(dims); }

}  // namespace onesided::sim
