#include "ascend_sim/route_torch/fused/sequences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/logsumexp.h>
#include <c10/util/Exception.h>

#include <limits>

namespace onesided::sim {

Attended attend(const Sequence& sequence, double scale, const at::Tensor& hidden) {
  const at::Tensor key = sequence.key.to(at::kFloat);
  const std::int64_t heads = sequence.query.size(0);
  const std::int64_t queries = sequence.query.size(1);
  const std::int64_t key_heads = key.size(0);
  TORCH_CHECK(key_heads > 0 && heads % key_heads == 0, "attention: ", heads, " query heads over ", key_heads,
              " key heads");
  const at::Tensor query = sequence.query.to(at::kFloat).reshape({key_heads, -1, sequence.query.size(2)});
  at::Tensor scores = at::bmm(query, key.transpose(1, 2)).mul_(scale).view({heads, queries, key.size(1)});
  if (hidden.defined()) scores.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
  at::Tensor log_sum = at::logsumexp(scores, -1);
  const at::Tensor weights = scores.sub_(log_sum.unsqueeze(-1)).exp_().nan_to_num_(0.0);
  at::Tensor output = at::bmm(weights.view({key_heads, -1, key.size(1)}), sequence.value.to(at::kFloat));
  return {output.view({heads, queries, sequence.value.size(2)}), std::move(log_sum)};
}

at::Tensor causal_to_the_end(std::int64_t queries, std::int64_t keys) {
  return at::arange(keys).unsqueeze(0) > at::arange(queries).unsqueeze(1) + (keys - queries);
}

at::Tensor read_pages(const at::Tensor& cache, const at::Tensor& blocks, std::int64_t length) {
  const std::int64_t block_size = cache.size(1);
  const std::int64_t count = (length + block_size - 1) / block_size;
  TORCH_CHECK(count <= blocks.numel(), "attention: ", length, " tokens need ", count, " blocks of ", block_size,
              ", but the block table has ", blocks.numel());
  return cache.index_select(0, blocks.narrow(0, 0, count).to(at::kLong)).flatten(0, 1).narrow(0, 0, length);
}

}  // namespace onesided::sim
