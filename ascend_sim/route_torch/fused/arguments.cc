#include "ascend_sim/route_torch/fused/arguments.h"

#include <c10/util/Exception.h>

namespace onesided::sim {

Arguments::Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
    : op_(op),
      stack_(stack),
      first_(stack.size() - op.schema().arguments().size()),
      name_(c10::toString(op.operator_name())),
      read_(op.schema().arguments().size(), false) {}

bool Arguments::has(const std::string& name) const { return op_.schema().argumentIndexWithName(name).has_value(); }

const c10::IValue& Arguments::read(const std::string& name) {
  const auto index = op_.schema().argumentIndexWithName(name);
  TORCH_CHECK(index, name_, ": this release of torch_npu has no argument ", name,
              ", which the simulator's reference needs");
  read_[static_cast<std::size_t>(*index)] = true;
  return stack_[first_ + static_cast<std::size_t>(*index)];
}

at::Tensor Arguments::tensor(const std::string& name) {
  at::Tensor found = tensor_or_none(name);
  TORCH_CHECK(found.defined(), name_, ": the argument ", name, " is needed");
  return found;
}

at::Tensor Arguments::first_tensor() {
  read_[0] = true;
  return stack_[first_].toTensor();
}

at::Tensor Arguments::tensor_or_none(const std::string& name) {
  const c10::IValue& value = read(name);
  return value.isNone() ? at::Tensor() : value.toTensor();
}

std::vector<at::Tensor> Arguments::tensors(const std::string& name) { return read(name).toTensorVector(); }
std::int64_t Arguments::integer(const std::string& name) { return read(name).toInt(); }
double Arguments::number(const std::string& name) { return read(name).toScalar().toDouble(); }
bool Arguments::flag(const std::string& name) { return read(name).toBool(); }
std::string Arguments::text(const std::string& name) { return read(name).toStringRef(); }

std::vector<std::int64_t> Arguments::integers(const std::string& name) {
  const c10::IValue& value = read(name);
  return value.isNone() ? std::vector<std::int64_t>() : value.toIntVector();
}

std::optional<std::string> Arguments::text_or_none(const std::string& name) {
  const c10::IValue& value = read(name);
  return value.isNone() ? std::nullopt : std::optional<std::string>(value.toStringRef());
}

void Arguments::refuse_others() const {
  const auto& arguments = op_.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack_[first_ + i];
    if (read_[i] || value.isNone()) continue;
    const auto& standard = arguments[i].default_value();
    const bool same = standard && !value.isTensor() && !value.isTensorList() && *standard == value;
    TORCH_CHECK(same, name_, ": the simulator's reference does not implement the argument ", arguments[i].name(),
                "; leave it out");
  }
}

}  // namespace onesided::sim
