// The arguments of a fused operator, by name. Releases of torch_npu add arguments to these operators, so a position
// means nothing; and an argument that the reference does not know must be refused, not ignored.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

namespace onesided::sim {

// The arguments of one call, on top of the stack. Confined to the call. Asking for a name that the operator does not
// have is an error, except where `has` was asked before.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

  const std::string& operator_name() const { return name_; }
  bool has(const std::string& name) const;
  // The first argument, whose name differs between releases.
  at::Tensor first_tensor();
  at::Tensor tensor(const std::string& name);
  // Undefined where the caller passed none.
  at::Tensor tensor_or_none(const std::string& name);
  std::vector<at::Tensor> tensors(const std::string& name);
  std::int64_t integer(const std::string& name);
  double number(const std::string& name);
  bool flag(const std::string& name);
  std::string text(const std::string& name);
  // Empty where the caller passed none.
  std::vector<std::int64_t> integers(const std::string& name);
  std::optional<std::string> text_or_none(const std::string& name);

  // Throws an error that names the first argument which was not read and has another value than its default.
  void refuse_others() const;

 private:
  const c10::IValue& read(const std::string& name);

  const c10::OperatorHandle& op_;
  const torch::jit::Stack& stack_;
  std::size_t first_;
  std::string name_;
  std::vector<bool> read_;
};

}  // namespace onesided::sim
