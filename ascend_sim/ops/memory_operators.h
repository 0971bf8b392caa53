// The operators that only move or fill memory, each as a function that checks a call and returns its work.
#pragma once

#include "ascend_sim/ops/operator.h"

namespace onesided::sim {

// Inputs are in the order that torch_npu passes them; shapes, offsets and the like are small host tensors of integers.
Result<OperatorWork> prepare_as_strided(const OperatorCall& call);  // x, size, stride, offset
Result<OperatorWork> prepare_view_copy(
    const OperatorCall& call);                                 // to, size, stride, offset, from, size, stride, offset
Result<OperatorWork> prepare_slice(const OperatorCall& call);  // x, offsets, size
Result<OperatorWork> prepare_transpose(const OperatorCall& call);     // x, permutation
Result<OperatorWork> prepare_broadcast_to(const OperatorCall& call);  // x, shape
Result<OperatorWork> prepare_move(const OperatorCall& call);          // x
Result<OperatorWork> prepare_cast(const OperatorCall& call);          // x; attribute dst_type
Result<OperatorWork> prepare_fill(const OperatorCall& call);          // dims, value
Result<OperatorWork> prepare_zeros_like(const OperatorCall& call);    // x
Result<OperatorWork> prepare_ones_like(const OperatorCall& call);     // x
Result<OperatorWork> prepare_concat(const OperatorCall& call);        // x...; attribute concat_dim
Result<OperatorWork> prepare_pad(const OperatorCall& call);           // x, paddings, value
Result<OperatorWork> prepare_pack(const OperatorCall& call);          // x...; attribute axis

}  // namespace onesided::sim
