#include "ascend_sim/ops/operator.h"

#include <fmt/core.h>

#include <map>

#include "ascend_sim/ops/memory_operators.h"

namespace onesided::sim {
namespace {

using Prepare = Result<OperatorWork> (*)(const OperatorCall& call);

const std::map<std::string_view, Prepare>& table() {
  static const auto* operators = new std::map<std::string_view, Prepare>{
      {"AsStrided", prepare_as_strided},
      {"BroadcastTo", prepare_broadcast_to},
      {"Cast", prepare_cast},
      {"ConcatD", prepare_concat},
      {"Fill", prepare_fill},
      {"Identity", prepare_move},
      {"OnesLike", prepare_ones_like},
      {"Pack", prepare_pack},
      {"PadV3", prepare_pad},
      {"Slice", prepare_slice},
      {"TensorMove", prepare_move},
      {"Transpose", prepare_transpose},
      {"ViewCopy", prepare_view_copy},
      {"ZerosLike", prepare_zeros_like},
  };
  return *operators;
}

// Checked before the computation: every tensor's dimensions must be valid and its bytes must exist.
Result<void> check_operand(const Operand& operand, const char* what, std::size_t index) {
  const std::size_t element = element_bytes(operand.type);
  if (element == 0) {
    return Error{Status::kParamInvalid,
                 fmt::format("{} {} is of {}, which is not simulated", what, index, type_name(operand.type))};
  }
  std::uint64_t nbytes = element;
  for (const std::int64_t dim : operand.dims) {
    if (dim < 0 || __builtin_mul_overflow(nbytes, static_cast<std::uint64_t>(dim), &nbytes)) {
      return Error{Status::kParamInvalid, fmt::format("{} {} has a dimension of {}", what, index, dim)};
    }
  }
  if (nbytes > operand.nbytes) {
    return Error{Status::kParamInvalid,
                 fmt::format("{} {} needs {} bytes, its buffer has {}", what, index, nbytes, operand.nbytes)};
  }
  return {};
}

}  // namespace

Result<OperatorWork> prepare_operator(const OperatorCall& call) {
  const auto at = table().find(call.name);
  if (at == table().end()) {
    return Error{Status::kNotFound, fmt::format("operator '{}' is not simulated", call.name)};
  }
  for (std::size_t i = 0; i < call.inputs.size(); ++i) ONESIDED_TRY(check_operand(call.inputs[i], "input", i));
  for (std::size_t i = 0; i < call.outputs.size(); ++i) ONESIDED_TRY(check_operand(call.outputs[i], "output", i));
  return at->second(call);
}

}  // namespace onesided::sim
