// PyTorch's operators for npu tensors run on PyTorch's own CPU kernels. The library that arranges this belongs to
// one torch version, so the runtime, which knows no torch, looks for the torch of this process and loads the fitting
// one.
#pragma once

namespace onesided::sim {

// Routes PyTorch's operators when torch is in this process and its library lies beside ours; does it once. Says so once
// when torch is there but the library is not. Thread-safe.
void route_torch_operators();

}  // namespace onesided::sim
