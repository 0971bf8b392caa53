// Almost any model code runs on simulated npus because PyTorch's own CPU kernels compute for them, in place. One
// boxed kernel stands in for nearly every operator that torch_npu registers.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <vector>

#include "ascend_sim/route_torch/fused/operators.h"
#include "ascend_sim/route_torch/replacements.h"
#include "ascend_sim/route_torch/routed_call.h"

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
  install_fused_operators();
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
