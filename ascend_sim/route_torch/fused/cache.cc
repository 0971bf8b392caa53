// Reading and writing caches of keys and values that are kept in blocks.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "ascend_sim/route_torch/fused/elementwise.h"
#include "ascend_sim/route_torch/fused/operators.h"

namespace onesided::sim {
namespace {

// Writes row i of `rows` to slot slots[i] of `cache` ([blocks, block_size, ...]). A negative slot drops its row, which
// is how padding is marked. A slot beyond the cache is an error and nothing is written: the hardware would write
// elsewhere.
void write_slots(const std::string& name, const at::Tensor& rows, const at::Tensor& cache, const at::Tensor& slots) {
  const std::int64_t size = cache.size(0) * cache.size(1);
  TORCH_CHECK(cache.is_contiguous(), name, ": the cache must be contiguous");
  TORCH_CHECK(rows.size(0) == slots.numel(), name, ": ", slots.numel(), " slots for ", rows.size(0), " rows");
  const at::Tensor wanted = slots.flatten().to(at::kLong);
  if (wanted.numel() == 0) return;
  const std::int64_t last = wanted.max().item<std::int64_t>();
  TORCH_CHECK(last < size, name, ": slot ", last, " lies beyond the cache of ", size, " slots");
  const at::Tensor kept = (wanted >= 0).nonzero().flatten();
  const at::Tensor values = rows.reshape({rows.size(0), -1}).index_select(0, kept).to(cache.scalar_type());
  cache.view({size, -1}).index_copy_(0, wanted.index_select(0, kept), values);
}

}  // namespace

Results reshape_and_cache(Arguments& arguments) {
  const at::Tensor slots = arguments.tensor("slot_indices");
  const at::Tensor key = arguments.tensor("key");
  const at::Tensor value = arguments.tensor("value");
  const at::Tensor key_cache = arguments.tensor("key_cache");
  const at::Tensor value_cache = arguments.tensor("value_cache");
  arguments.refuse_others();
  write_slots(arguments.operator_name(), key, key_cache, slots);
  write_slots(arguments.operator_name(), value, value_cache, slots);
  return {};
}

Results reshape_and_cache_one(Arguments& arguments) {
  const at::Tensor key = arguments.tensor("key");
  const at::Tensor cache = arguments.tensor("key_cache");
  const at::Tensor slots = arguments.tensor("slot_indices");
  arguments.refuse_others();
  write_slots(arguments.operator_name(), key, cache, slots);
  return {};
}

namespace {

// target[indices[i]] = updates[i], where the last dimension of `indices` counts through target's leading dimensions.
void scatter(const at::Tensor& target, const at::Tensor& indices, const at::Tensor& updates) {
  c10::List<std::optional<at::Tensor>> positions;
  for (const at::Tensor& index : indices.to(at::kLong).unbind(-1)) positions.push_back(index);
  target.index_put_(positions, updates.to(target.scalar_type()));
}

}  // namespace

Results scatter_nd_update(Arguments& arguments) {
  const at::Tensor made = arguments.first_tensor().clone();
  scatter(made, arguments.tensor("indices"), arguments.tensor("updates"));
  arguments.refuse_others();
  return {made};
}

Results scatter_nd_update_in_place(Arguments& arguments) {
  const at::Tensor target = arguments.first_tensor();
  scatter(target, arguments.tensor("indices"), arguments.tensor("updates"));
  arguments.refuse_others();
  return {target};
}

// The first context_lens[i] rows, from seq_starts[i] on, of each sequence's blocks, one sequence after another.
Results paged_cache_load(Arguments& arguments) {
  const at::Tensor caches[] = {arguments.tensor("key_cache"), arguments.tensor("value_cache")};
  const at::Tensor table = arguments.tensor("block_table").to(at::kLong);
  at::Tensor lengths = arguments.tensor("context_lens").to(at::kLong);
  if (arguments.flag("cumsum")) lengths = lengths.diff();
  const at::Tensor starts = arguments.tensor_or_none("seq_starts");
  Results given;
  if (arguments.has("key")) given = {arguments.tensor("key"), arguments.tensor("value")};
  arguments.refuse_others();
  Results results;
  for (const at::Tensor& cache : caches) {
    std::vector<at::Tensor> rows;
    for (std::int64_t i = 0; i < lengths.numel(); ++i) {
      const std::int64_t length = lengths[i].item<std::int64_t>();
      const std::int64_t start = starts.defined() ? starts[i].item<std::int64_t>() : 0;
      const std::int64_t blocks = (start + length + cache.size(1) - 1) / cache.size(1);
      rows.push_back(cache.index_select(0, table[i].narrow(0, 0, blocks)).flatten(0, 1).narrow(0, start, length));
    }
    results.push_back(at::cat(rows, 0));
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    given[i].narrow(0, 0, results[i].size(0)).copy_(results[i]);
    results[i] = given[i];
  }
  return results;
}

// The latent part of `kv` ([batch, heads, tokens, latent + rope]) is normalised, the rest rotated; both go into their
// paged caches. Returns the caches and, where asked, the rows themselves.
Results kv_rms_norm_rope_cache(Arguments& arguments) {
  const at::Tensor kv = arguments.tensor("kv");
  const at::Tensor gamma = arguments.tensor("gamma");
  const at::Tensor cos = arguments.tensor("cos").to(at::kFloat);
  const at::Tensor sin = arguments.tensor("sin").to(at::kFloat);
  const at::Tensor slots = arguments.tensor("index");
  const at::Tensor rope_cache = arguments.tensor("k_cache");
  const at::Tensor latent_cache = arguments.tensor("ckv_cache");
  const double epsilon = arguments.number("epsilon");
  const std::string mode = arguments.text("cache_mode");
  const bool rows_too = arguments.flag("is_output_kv");
  arguments.refuse_others();
  TORCH_CHECK(mode == "PA", arguments.operator_name(), ": cache_mode '", mode, "' is not simulated; use 'PA'");
  const at::Tensor wide = kv.to(at::kFloat);
  const std::int64_t latent_size = gamma.numel();
  const at::Tensor latent =
      (normalize_rms(wide.narrow(-1, 0, latent_size), epsilon).value * gamma.to(at::kFloat)).to(kv.scalar_type());
  const at::Tensor rope = rotate_half(even_then_odd(wide.narrow(-1, latent_size, kv.size(-1) - latent_size)), cos, sin)
                              .to(kv.scalar_type());
  const auto by_token = [](const at::Tensor& x) { return x.transpose(1, 2).flatten(0, 1); };
  write_slots(arguments.operator_name(), by_token(rope), rope_cache, slots);
  write_slots(arguments.operator_name(), by_token(latent), latent_cache, slots);
  const at::Tensor none = at::empty({0}, kv.options());
  return {rope_cache, latent_cache, rows_too ? rope : none, rows_too ? latent : none};
}

}  // namespace onesided::sim
