#include "ascend_sim/route_torch/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <mutex>

#include "ascend_sim/route_torch/torch_npu_state.h"

namespace onesided::sim {
namespace {

// The seed of the next draw of an npu generator (splitmix64 of seed and offset); its offset moves on by one Philox
// block.
std::uint64_t next_seed(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const std::uint64_t offset = generator.get_offset();
  generator.set_offset(offset + 4);
  std::uint64_t mixed = generator.current_seed() + (offset + 1) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

std::uint64_t next_seed(c10::Device device, const std::optional<at::Generator>& given) {
  const bool npu = given && given->defined() && given->device().type() == c10::DeviceType::PrivateUse1;
  return next_seed(npu ? *given : default_generator(device.index()));
}

}  // namespace

at::Generator draw_generator(c10::Device device, const std::optional<at::Generator>& given) {
  return at::detail::createCPUGenerator(next_seed(device, given));
}

void with_default_generator(c10::Device device, const std::function<void()>& work) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> turn(one_at_a_time);
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  at::Tensor saved;
  {
    const std::lock_guard<std::mutex> lock(cpu.mutex());
    saved = at::Tensor::wrap_tensor_impl(cpu.unsafeGetGeneratorImpl()->get_state());
    cpu.set_current_seed(next_seed(device, std::nullopt));
  }
  const auto restore = [&] {
    const std::lock_guard<std::mutex> lock(cpu.mutex());
    cpu.unsafeGetGeneratorImpl()->set_state(*saved.unsafeGetTensorImpl());
  };
  try {
    work();
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

}  // namespace onesided::sim
