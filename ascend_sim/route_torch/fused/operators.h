// Fused operators of Ascend (attention over paged caches, norms, rotary embeddings, ...), computed on the CPU by their
// public formulas. Half-precision inputs are computed in float32 and rounded once, at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ascend_sim/route_torch/fused/arguments.h"

namespace onesided::sim {

// What one operator computes: from CPU tensors over the npu's memory to its results. Tensors that the operator writes
// are written in place.
using Results = std::vector<at::Tensor>;

Results rms_norm(Arguments& arguments);
Results add_rms_norm(Arguments& arguments);
Results swiglu(Arguments& arguments);
Results format_cast(Arguments& arguments);
Results matmul_add(Arguments& arguments);
Results transpose_batch_matmul(Arguments& arguments);

Results rotary_mul(Arguments& arguments);
Results rotary_embedding(Arguments& arguments);
Results interleave_rope(Arguments& arguments);

Results reshape_and_cache(Arguments& arguments);
Results reshape_and_cache_one(Arguments& arguments);
Results scatter_nd_update(Arguments& arguments);
Results scatter_nd_update_in_place(Arguments& arguments);
Results paged_cache_load(Arguments& arguments);
Results kv_rms_norm_rope_cache(Arguments& arguments);

Results fused_infer_attention(Arguments& arguments);
Results fused_infer_attention_out(Arguments& arguments);
Results paged_attention(Arguments& arguments);
Results ring_mla(Arguments& arguments);
// Workspaces are the hardware's scratch memory; the reference needs none. One byte.
Results no_workspace(Arguments& arguments);

// Puts these in the place of torch_npu's kernels. Called once.
void install_fused_operators();

}  // namespace onesided::sim
