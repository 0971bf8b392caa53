// Formulas that several fused operators share. Inputs and results are float32 CPU tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace onesided::sim {

// x / sqrt(mean(x^2) + epsilon) over the last dimension, and 1 / sqrt(...) with that dimension kept as 1.
struct Normalized {
  at::Tensor value;
  at::Tensor reciprocal;
};
Normalized normalize_rms(const at::Tensor& x, double epsilon);

// x * cos + rotated(x) * sin. Half: rotated(x) = (-second half, first half). Interleaved: each pair (a, b) gives (-b,
// a).
at::Tensor rotate_half(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);
at::Tensor rotate_interleaved(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// The even positions of the last dimension, then the odd ones.
at::Tensor even_then_odd(const at::Tensor& x);

}  // namespace onesided::sim
