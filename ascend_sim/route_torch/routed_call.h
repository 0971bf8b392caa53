// One call of an operator on npu tensors on its way to code that computes on the CPU, and back.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>

#include "ascend_sim/route_torch/tensors.h"

namespace onesided::sim {

// Confined to the call.
class RoutedCall {
 public:
  RoutedCall(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(stack) {}

  // Computes with PyTorch's own CPU kernel of the operator.
  void run();
  // Replaces the arguments on the stack by CPU tensors over the same memory, lets `compute` replace them by its
  // results, and turns those into npu tensors. Work queued on the current stream is done before.
  void run(const std::function<void()>& compute);

 private:
  void find_device(std::size_t first);
  void check_host_tensors(std::size_t first) const;
  void wait_for_stream() const;
  bool convert(c10::IValue& value, const c10::Argument& argument);
  void give_back(c10::IValue& value);

  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  c10::Device device_{c10::DeviceType::PrivateUse1, 0};
  CallTensors tensors_;
};

}  // namespace onesided::sim
