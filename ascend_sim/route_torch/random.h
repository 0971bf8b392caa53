// Random operators must obey torch.npu's generators (manual_seed, get_rng_state), although CPU kernels draw the
// numbers: each call seeds a CPU generator from the npu generator's seed and offset, and moves the offset on.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <functional>
#include <optional>

namespace onesided::sim {

// A CPU generator for one call on `device`; `given` is the npu generator that the caller passed, if any.
at::Generator draw_generator(c10::Device device, const std::optional<at::Generator>& given);

// Runs `work`, whose kernels use the CPU's default generator, as if that were one drawn for the call; the default
// generator's own sequence is not disturbed. One call at a time.
void with_default_generator(c10::Device device, const std::function<void()>& work);

}  // namespace onesided::sim
