// Simulated device memory is host memory too, so a CPU kernel can work on an npu tensor in place. These are the
// two directions: a CPU tensor over the memory of an npu tensor, and an npu tensor for what a CPU kernel returned.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace onesided::sim {

inline bool is_npu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// The tensors of one operator call. Confined to the call.
class CallTensors {
 public:
  // A CPU tensor with the same memory, shape and flags; npu tensors that share storage give CPU tensors that share it.
  // Other tensors are returned as they are.
  at::Tensor to_cpu(const at::Tensor& tensor, bool written);
  // What `tensor`, returned by the CPU kernel, is to the caller: the npu tensor it was lent from, a view of one, or a
  // new npu tensor on `device` with its values. CPU tensors that the caller passed in come back as they are.
  at::Tensor from_cpu(const at::Tensor& tensor, c10::Device device);
  // Carries back to the npu tensors that the operator resized or reshaped in place. Growing one may queue a copy of its
  // old values; `wait` waits for the stream, so that this copy does not come after the new values.
  void settle(const std::function<void()>& wait);

 private:
  struct Lent {
    at::Tensor npu;
    at::Tensor cpu;
    bool written;
  };
  struct LentStorage {
    c10::Storage npu;
    c10::Storage cpu;
    void* memory;
  };
  LentStorage& lend_storage(const at::Tensor& tensor);
  const LentStorage* origin_of(const at::Tensor& cpu) const;

  std::vector<Lent> lent_;
  std::vector<LentStorage> storages_;
  std::vector<at::Tensor> passed_;  // the caller's own CPU tensors
};

}  // namespace onesided::sim
