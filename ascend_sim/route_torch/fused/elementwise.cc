#include "ascend_sim/route_torch/fused/elementwise.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>

#include "ascend_sim/route_torch/fused/operators.h"

namespace onesided::sim {

Normalized normalize_rms(const at::Tensor& x, double epsilon) {
  const at::Tensor reciprocal = at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + epsilon);
  return {x * reciprocal, reciprocal};
}

at::Tensor rotate_half(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
}

at::Tensor rotate_interleaved(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor pairs = x.unflatten(-1, {-1, 2});
  const at::Tensor turned = at::stack({-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2);
  return x * cos + turned * sin;
}

at::Tensor even_then_odd(const at::Tensor& x) { return x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2); }

Results rms_norm(Arguments& arguments) {
  const at::Tensor x = arguments.first_tensor();
  const at::Tensor gamma = arguments.tensor("gamma");
  const Normalized normalized = normalize_rms(x.to(at::kFloat), arguments.number("epsilon"));
  arguments.refuse_others();
  return {(normalized.value * gamma.to(at::kFloat)).to(x.scalar_type()), normalized.reciprocal};
}

Results add_rms_norm(Arguments& arguments) {
  const at::Tensor first = arguments.tensor("x1");
  const at::Tensor sum = (first.to(at::kFloat) + arguments.tensor("x2").to(at::kFloat)).to(first.scalar_type());
  const at::Tensor gamma = arguments.tensor("gamma");
  const Normalized normalized = normalize_rms(sum.to(at::kFloat), arguments.number("epsilon"));
  arguments.refuse_others();
  return {(normalized.value * gamma.to(at::kFloat)).to(first.scalar_type()), normalized.reciprocal, sum};
}

Results swiglu(Arguments& arguments) {
  const at::Tensor x = arguments.first_tensor();
  const std::int64_t dim = arguments.integer("dim");
  arguments.refuse_others();
  TORCH_CHECK(x.size(dim) % 2 == 0, "npu_swiglu: dimension ", dim, " has ", x.size(dim),
              " elements; it is cut in two and must be even");
  const auto halves = x.to(at::kFloat).chunk(2, dim);
  return {(at::silu(halves[0]) * halves[1]).to(x.scalar_type())};
}

// Private layouts (FRACTAL_NZ and others) change where the hardware keeps an element, never its value. Simulated
// tensors keep PyTorch's layout.
Results format_cast(Arguments& arguments) { return {arguments.first_tensor()}; }

Results transpose_batch_matmul(Arguments& arguments) {
  const auto permuted = [](const at::Tensor& x, const std::vector<std::int64_t>& order) {
    return order.empty() ? x : x.permute(order);
  };
  const at::Tensor x = arguments.first_tensor();
  const at::Tensor weight = arguments.tensor("weight");
  const at::Tensor left = permuted(x.to(at::kFloat), arguments.integers("perm_x1"));
  const at::Tensor right = permuted(weight.to(at::kFloat), arguments.integers("perm_x2"));
  const auto order = arguments.integers("perm_y");
  arguments.refuse_others();
  return {permuted(at::bmm(left, right), order).to(x.scalar_type()).contiguous()};
}

// C += transpose(x) * weight, accumulated in float32: how gradients of a linear layer are summed.
Results matmul_add(Arguments& arguments) {
  const at::Tensor x = arguments.tensor("x").to(at::kFloat);
  const at::Tensor weight = arguments.tensor("weight").to(at::kFloat);
  arguments.tensor("C").add_(at::mm(x.transpose(0, 1), weight));
  arguments.refuse_others();
  return {};
}

}  // namespace onesided::sim
