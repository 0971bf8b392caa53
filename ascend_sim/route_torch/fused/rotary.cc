// Rotary position embeddings, in the two ways in which models pair the elements of a head.
#include <ATen/TensorOperators.h>

#include "ascend_sim/route_torch/fused/elementwise.h"
#include "ascend_sim/route_torch/fused/operators.h"

namespace onesided::sim {

Results rotary_mul(Arguments& arguments) {
  const at::Tensor x = arguments.first_tensor();
  const at::Tensor cos = arguments.tensor("r1").to(at::kFloat);
  const at::Tensor sin = arguments.tensor("r2").to(at::kFloat);
  const std::string mode = arguments.text("rotary_mode");
  arguments.refuse_others();
  TORCH_CHECK(mode == "half" || mode == "interleave", "npu_rotary_mul: rotary_mode '", mode,
              "' is not simulated; use 'half' or 'interleave'");
  const auto rotate = mode == "half" ? rotate_half : rotate_interleaved;
  return {rotate(x.to(at::kFloat), cos, sin).to(x.scalar_type())};
}

Results interleave_rope(Arguments& arguments) {
  const at::Tensor x = arguments.tensor("x");
  const at::Tensor cos = arguments.tensor("cos").to(at::kFloat);
  const at::Tensor sin = arguments.tensor("sin").to(at::kFloat);
  arguments.refuse_others();
  return {rotate_half(even_then_odd(x.to(at::kFloat)), cos, sin).to(x.scalar_type())};
}

namespace {

// Rotates the first columns of every head of `x` ([tokens, heads * head_size]) in place. `cos_sin` is [tokens,
// columns]: the cosines of all angles, then their sines.
void rotate_heads(const at::Tensor& x, std::int64_t head_size, const at::Tensor& cos_sin, bool halves) {
  const std::int64_t columns = cos_sin.size(-1);
  TORCH_CHECK(x.is_contiguous(), "_npu_rotary_embedding: query and key must be contiguous");
  const at::Tensor part = x.view({cos_sin.size(0), -1, head_size}).narrow(-1, 0, columns);
  const auto angles = cos_sin.to(at::kFloat).unsqueeze(1).chunk(2, -1);
  const auto spread = [&](const at::Tensor& angle) {
    return halves ? angle.repeat({1, 1, 2}) : angle.repeat_interleave(2, -1);
  };
  const auto rotate = halves ? rotate_half : rotate_interleaved;
  part.copy_(rotate(part.to(at::kFloat), spread(angles[0]), spread(angles[1])));
}

}  // namespace

Results rotary_embedding(Arguments& arguments) {
  const at::Tensor positions = arguments.tensor("positions").flatten();
  const at::Tensor cos_sin = arguments.tensor("cos_sin_cache").index_select(0, positions.to(at::kLong));
  const std::int64_t head_size = arguments.integer("head_size");
  const bool halves = arguments.flag("is_neox_style");
  const at::Tensor query = arguments.tensor("query");
  const at::Tensor key = arguments.tensor("key");
  arguments.refuse_others();
  TORCH_CHECK(cos_sin.size(-1) <= head_size, "_npu_rotary_embedding: cos_sin_cache has ", cos_sin.size(-1),
              " columns, more than the head size ", head_size);
  rotate_heads(query, head_size, cos_sin, halves);
  rotate_heads(key, head_size, cos_sin, halves);
  return {};
}

}  // namespace onesided::sim
