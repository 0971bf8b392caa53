#include "ascend_sim/route_torch/torch_npu_state.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#include "torch_npu/csrc/aten/NPUGeneratorImpl.h"
#include "torch_npu/csrc/core/npu/NPUStream.h"
#pragma GCC diagnostic pop

namespace onesided::sim {

void* current_stream(c10::DeviceIndex device) { return c10_npu::getCurrentNPUStream(device).stream(); }

const at::Generator& default_generator(c10::DeviceIndex device) {
  return at_npu::detail::getDefaultNPUGenerator(device);
}

}  // namespace onesided::sim
