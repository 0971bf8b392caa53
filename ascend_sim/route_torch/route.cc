// Almost any model code runs on simulated npus because PyTorch's own CPU kernels compute for them, in place. One
// boxed kernel stands in for nearly every operator that torch_npu registers.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <vector>

#include "ascend_sim/acl/functions.h"
#include "ascend_sim/route_torch/random.h"
#include "ascend_sim/route_torch/replacements.h"
#include "ascend_sim/route_torch/tensors.h"
#include "ascend_sim/route_torch/torch_npu_state.h"

namespace onesided::sim {
namespace {

// Operators that stay torch_npu's: they make, view, move or describe npu memory themselves.
bool kept(const std::string& name) {
  static const std::set<std::string> names = {"_copy_from_and_resize",
                                              "_has_compatible_shallow_copy_type",
                                              "_lazy_clone",
                                              "_local_scalar_dense",
                                              "_pin_memory",
                                              "_reshape_alias",
                                              "_to_copy",
                                              "as_strided",
                                              "as_strided_",
                                              "clone",
                                              "contiguous",
                                              "copy_",
                                              "copy_memory_",
                                              "empty.memory_format",
                                              "empty_like",
                                              "empty_strided",
                                              "empty_with_format",
                                              "empty_with_swapped_memory",
                                              "get_npu_format",
                                              "get_storage_size",
                                              "is_pinned",
                                              "is_set_to",
                                              "new_empty_strided",
                                              "record_stream",
                                              "resize_",
                                              "resize_as_",
                                              "set_",
                                              "set_.source_Storage",
                                              "set_.source_Storage_storage_offset",
                                              "set_.source_Tensor",
                                              "squeeze",
                                              "squeeze.dim",
                                              "unfold",
                                              "unsafe_empty_with_format",
                                              "unsqueeze",
                                              "view",
                                              "view_as_complex",
                                              "view_as_real"};
  return names.count(name) > 0 || name.rfind("npu_", 0) == 0 || name.rfind("_npu_", 0) == 0;
}

// One call on its way to a CPU kernel and back. Confined to the call.
class RoutedCall {
 public:
  RoutedCall(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(stack) {}

  void run() {
    const auto& arguments = op_.schema().arguments();
    const std::size_t first = stack_->size() - arguments.size();
    find_device(first);
    const c10::DeviceGuard on_device(device_);
    wait_for_stream();
    bool generator_passed = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) generator_passed |= convert((*stack_)[first + i], arguments[i]);
    const auto compute = [&] { op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack_); };
    if (!generator_passed && op_.hasTag(at::Tag::nondeterministic_seeded)) {
      with_default_generator(device_, compute);
    } else {
      compute();
    }
    tensors_.settle([this] { wait_for_stream(); });
    const std::size_t results = op_.schema().returns().size();
    for (std::size_t i = stack_->size() - results; i < stack_->size(); ++i) give_back((*stack_)[i]);
  }

 private:
  // The device of the npu tensors, else of the device argument, else the current one. CPU kernels would compute across
  // devices; the hardware does not, so tensors of two devices are refused as PyTorch refuses them.
  void find_device(std::size_t first) {
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
  void check_host_tensors(std::size_t first) const {
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
  void wait_for_stream() const {
    // Not PyTorch's synchronizeStream(), which refuses streams of other owners.
    void* stream = current_stream(device_.index());
    TORCH_CHECK(stream, op_.operator_name(), ": torch_npu's task queue has stopped after an earlier failure");
    if (const AclError code = aclrtSynchronizeStream(stream); code != kAclOk) {
      const char* words = aclGetRecentErrMsg();
      TORCH_CHECK(false, op_.operator_name(), ": ", words ? words : fmt::format("error {}", code));
    }
  }

  // Replaces one argument by what the CPU kernel shall see. True for a generator that was filled in.
  bool convert(c10::IValue& value, const c10::Argument& argument) {
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
      value = draw_generator(device_,
                             value.isGenerator() ? std::optional<at::Generator>(value.toGenerator()) : std::nullopt);
      return true;
    }
    return false;
  }

  static bool is_type(const c10::Argument& argument, c10::TypeKind kind) {
    const c10::TypePtr& type = argument.type();
    if (type->kind() == kind) return true;
    const auto optional = type->cast<c10::OptionalType>();
    return optional && optional->getElementType()->kind() == kind;
  }

  void give_back(c10::IValue& value) {
    if (value.isTensor()) {
      value = tensors_.from_cpu(value.toTensor(), device_);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(tensors_.from_cpu(tensor, device_));
      value = std::move(list);
    }
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  c10::Device device_{c10::DeviceType::PrivateUse1, 0};
  CallTensors tensors_;
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { RoutedCall(op, stack).run(); }

bool has_cpu_kernel(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  for (const Key key : {Key::CPU, Key::CompositeExplicitAutograd, Key::CompositeExplicitAutogradNonFunctional,
                        Key::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
}

// Registering over torch_npu's kernels is what this is for; PyTorch's warning about it is not news.
class Silent : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// torch_npu brings derivatives of its own for some operators, which end in kernels that only the hardware has.
// PyTorch's own derivative, or decomposition, is there for each of them and leads to operators that are routed.
void differentiate_as_pytorch(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const bool decomposed = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  op.callBoxedForDispatchKey(decomposed ? c10::DispatchKey::CompositeImplicitAutograd : c10::DispatchKey::Autograd,
                             *stack);
}

bool has_pytorch_derivative(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::Autograd);
}

// Puts `kernel` in the place of torch_npu's for every operator of `key` that is not kept and that `can_be_replaced`.
template <void (*kernel)(const c10::OperatorHandle&, torch::jit::Stack*)>
int replace(c10::DispatchKey key, bool (*can_be_replaced)(const c10::OperatorHandle&)) {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);  // for ever
  auto& dispatcher = c10::Dispatcher::singleton();
  int replaced = 0;
  for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(key)) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const std::string full = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    const auto op = dispatcher.findOp(name);
    if (!op || kept(full) || !can_be_replaced(*op)) continue;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<kernel>());
    ++replaced;
  }
  return replaced;
}

int install() {
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  const int routed = replace<&run_on_cpu>(c10::DispatchKey::PrivateUse1, has_cpu_kernel);
  (void)replace<&differentiate_as_pytorch>(c10::DispatchKey::AutogradPrivateUse1, has_pytorch_derivative);
  replace_recurrent_cells();
  return routed;
}

}  // namespace
}  // namespace onesided::sim

// The number of operators routed. Called once by the runtime. Never throws.
extern "C" __attribute__((visibility("default"))) int onesided_route_install() {
  try {
    return onesided::sim::install();
  } catch (const std::exception& error) {
    fprintf(stderr, "onesided: cannot route operators to the CPU: %s\n", error.what());
    return -1;
  }
}
