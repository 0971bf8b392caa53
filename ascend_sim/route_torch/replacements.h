// Operators that PyTorch's CPU does not have, given to npu tensors in terms of those it has.
#pragma once

namespace onesided::sim {

// Called once, with warnings about overridden kernels silenced.
void replace_recurrent_cells();

}  // namespace onesided::sim
