#include "ascend_sim/route_torch/tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

namespace onesided::sim {
namespace {

// A tensor with the given storage and the geometry of `like`.
at::Tensor alias(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) made._set_conj(true);
  if (like.is_neg()) made._set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.storage_offset() == b.storage_offset();
}

// A new npu tensor with the values of a CPU tensor. The caller's stream is idle, so that the fresh memory may be
// written at once.
at::Tensor upload(const at::Tensor& cpu, c10::Device device) {
  at::Tensor source = cpu.resolve_conj().resolve_neg();
  if (!source.is_non_overlapping_and_dense()) source = source.contiguous();
  at::Tensor made = at::empty_strided(source.sizes(), source.strides(), source.options().device(device));
  if (source.numel() > 0) std::memcpy(made.data_ptr(), source.data_ptr(), source.numel() * source.itemsize());
  return made;
}

}  // namespace

CallTensors::LentStorage& CallTensors::lend_storage(const at::Tensor& tensor) {
  const c10::Storage& npu = tensor.storage();
  for (LentStorage& lent : storages_) {
    if (lent.npu.unsafeGetStorageImpl() == npu.unsafeGetStorageImpl()) return lent;
  }
  // Resizable with the CPU's allocator: an operator that must grow its output moves it to memory of its own, from where
  // settle() brings it home.
  void* memory = npu.unsafeGetStorageImpl()->mutable_data();
  c10::Storage cpu(c10::Storage::use_byte_size_t(), npu.nbytes(), c10::DataPtr(memory, c10::Device(c10::kCPU)),
                   c10::GetCPUAllocator(), /*resizable=*/true);
  storages_.push_back({npu, std::move(cpu), memory});
  return storages_.back();
}

at::Tensor CallTensors::to_cpu(const at::Tensor& tensor, bool written) {
  if (!is_npu(tensor)) {
    if (tensor.defined()) passed_.push_back(tensor);
    return tensor;
  }
  for (Lent& lent : lent_) {
    if (lent.npu.is_same(tensor)) {
      lent.written |= written;
      return lent.cpu;
    }
  }
  at::Tensor cpu = alias(lend_storage(tensor).cpu, c10::DispatchKey::CPU, tensor);
  lent_.push_back({tensor, cpu, written});
  return cpu;
}

const CallTensors::LentStorage* CallTensors::origin_of(const at::Tensor& cpu) const {
  if (!cpu.has_storage()) return nullptr;
  for (const LentStorage& lent : storages_) {
    if (lent.cpu.unsafeGetStorageImpl() == cpu.storage().unsafeGetStorageImpl()) return &lent;
  }
  return nullptr;
}

at::Tensor CallTensors::from_cpu(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device().type() != c10::DeviceType::CPU) return tensor;
  for (const Lent& lent : lent_) {
    if (lent.cpu.is_same(tensor)) return lent.npu;
  }
  for (const at::Tensor& own : passed_) {
    if (own.is_same(tensor)) return tensor;
  }
  const LentStorage* origin = origin_of(tensor);
  if (origin && origin->cpu.data() == origin->memory) {
    // The npu key set of a lent tensor, so that a view is of the same kind as its base.
    return alias(origin->npu, c10::DispatchKey::PrivateUse1, tensor);
  }
  return upload(tensor, device);
}

void CallTensors::settle(const std::function<void()>& wait) {
  for (Lent& lent : lent_) {
    if (!lent.written) continue;
    const LentStorage* origin = origin_of(lent.cpu);
    const bool moved = !origin || origin->cpu.data() != origin->memory;
    if (!moved && same_geometry(lent.cpu, lent.npu)) continue;
    if (moved) {
      lent.npu.resize_(lent.cpu.sizes());
      wait();
      const at::Tensor values = lent.cpu.contiguous();
      if (values.numel() > 0) std::memcpy(lent.npu.data_ptr(), values.data_ptr(), values.numel() * values.itemsize());
      if (lent.npu.strides() != lent.cpu.strides() && lent.cpu.is_non_overlapping_and_dense()) {
        lent.npu.unsafeGetTensorImpl()->set_sizes_and_strides(lent.cpu.sizes(), lent.cpu.strides());
        std::memcpy(lent.npu.data_ptr(), lent.cpu.data_ptr(), values.numel() * values.itemsize());
      }
    } else {
      lent.npu.unsafeGetTensorImpl()->set_sizes_and_strides(lent.cpu.sizes(), lent.cpu.strides(),
                                                            lent.cpu.storage_offset());
    }
  }
}

}  // namespace onesided::sim
