// What routed operators must know of torch_npu's state. Asked of torch_npu itself: older versions of PyTorch have no
// general way to ask a backend for these.
#pragma once

#include <ATen/core/Generator.h>

namespace onesided::sim {

// The calling thread's current stream of the npu, emptied: what torch_npu's own queue held has reached the runtime.
// Null when that queue stopped after a failure.
void* current_stream(c10::DeviceIndex device);

// The generator that torch.npu.manual_seed() seeds.
const at::Generator& default_generator(c10::DeviceIndex device);

}  // namespace onesided::sim
