#include "ascend_sim/route_torch/routed_call.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>

#include <set>
#include <string>

#include "ascend_sim/acl/functions.h"
#include "ascend_sim/route_torch/random.h"
#include "ascend_sim/route_torch/torch_npu_state.h"

namespace onesided::sim {
namespace {

bool is_type(const c10::Argument& argument, c10::TypeKind kind) {
  const c10::TypePtr& type = argument.type();
  if (type->kind() == kind) return true;
  const auto optional = type->cast<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == kind;
}

}  // namespace

void RoutedCall::run() {
  run([this] { op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack_); });
}

void RoutedCall::run(const std::function<void()>& compute) {
  const auto& arguments = op_.schema().arguments();
  const std::size_t first = stack_->size() - arguments.size();
  find_device(first);
  const c10::DeviceGuard on_device(device_);
  wait_for_stream();
  bool generator_passed = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) generator_passed |= convert((*stack_)[first + i], arguments[i]);
  if (!generator_passed && op_.hasTag(at::Tag::nondeterministic_seeded)) {
    with_default_generator(device_, compute);
  } else {
    compute();
  }
  tensors_.settle([this] { wait_for_stream(); });
  const std::size_t results = op_.schema().returns().size();
  for (std::size_t i = stack_->size() - results; i < stack_->size(); ++i) give_back((*stack_)[i]);
}

// The device of the npu tensors, else of the device argument, else the current one. CPU kernels would compute across
// devices; the hardware does not, so tensors of two devices are refused as PyTorch refuses them.
void RoutedCall::find_device(std::size_t first) {
  std::optional<c10::Device> found;
  std::optional<c10::Device> asked;
  const auto look_at = [&](const at::Tensor& tensor) {
    if (!is_npu(tensor)) return;
    if (!found) found = tensor.device();
    TORCH_CHECK(*found == tensor.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", *found, " and ",
                tensor.device(), "! (when checking the arguments of ", op_.operator_name(), ")");
  };
  for (std::size_t i = first; i < stack_->size(); ++i) {
    const c10::IValue& value = (*stack_)[i];
    if (value.isTensor()) look_at(value.toTensor());
    if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor()) look_at(item.toTensor());
      }
    }
    if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1) asked = value.toDevice();
  }
  if (found) {
    device_ = *found;
    check_host_tensors(first);
    return;
  }
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  device_ = asked && asked->has_index() ? *asked : guard.getDevice();
}

// Where the arithmetic is element by element, or a matrix product, a host tensor may stand beside npu tensors only as
// a single number. Other operators (indexing, for one) do take host tensors.
void RoutedCall::check_host_tensors(std::size_t first) const {
  static const std::set<std::string> products = {"aten::mm",    "aten::bmm", "aten::addmm", "aten::baddbmm",
                                                 "aten::addmv", "aten::mv",  "aten::dot"};
  if (!op_.hasTag(at::Tag::pointwise) && products.count(op_.operator_name().name) == 0) return;
  for (std::size_t i = first; i < stack_->size(); ++i) {
    const c10::IValue& value = (*stack_)[i];
    if (!value.isTensor() || !value.toTensor().defined() || is_npu(value.toTensor())) continue;
    TORCH_CHECK(value.toTensor().dim() == 0, "Expected all tensors to be on the same device, but found at least two ",
                "devices, ", device_, " and ", value.toTensor().device(), "! (when checking the arguments of ",
                op_.operator_name(), ")");
  }
}

// A CPU kernel runs now, so what the caller's stream was told before must be done. Other streams are not waited for:
// ordering them is the program's business, as on the hardware.
void RoutedCall::wait_for_stream() const {
  // Not PyTorch's synchronizeStream(), which refuses streams of other owners.
  void* stream = current_stream(device_.index());
  TORCH_CHECK(stream, op_.operator_name(), ": torch_npu's task queue has stopped after an earlier failure");
  if (const AclError code = aclrtSynchronizeStream(stream); code != kAclOk) {
    const char* words = aclGetRecentErrMsg();
    TORCH_CHECK(false, op_.operator_name(), ": ", words ? words : fmt::format("error {}", code));
  }
}

// Replaces one argument by what the CPU kernel shall see. True for a generator that was filled in.
bool RoutedCall::convert(c10::IValue& value, const c10::Argument& argument) {
  const bool written = argument.alias_info() && argument.alias_info()->isWrite();
  if (value.isTensor()) {
    value = tensors_.to_cpu(value.toTensor(), written);
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(tensors_.to_cpu(tensor, written));
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional<at::Tensor>(tensors_.to_cpu(*tensor, written)) : std::nullopt);
    }
    value = std::move(list);
  } else if (is_type(argument, c10::TypeKind::DeviceObjType)) {
    value = c10::Device(c10::kCPU);
  } else if (is_type(argument, c10::TypeKind::GeneratorType)) {
    value =
        draw_generator(device_, value.isGenerator() ? std::optional<at::Generator>(value.toGenerator()) : std::nullopt);
    return true;
  }
  return false;
}

void RoutedCall::give_back(c10::IValue& value) {
  if (value.isTensor()) {
    value = tensors_.from_cpu(value.toTensor(), device_);
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(tensors_.from_cpu(tensor, device_));
    value = std::move(list);
  }
}

}  // namespace onesided::sim
