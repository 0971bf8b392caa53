// The attention operators: what their arguments mean. The arithmetic is in sequences.cc.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "ascend_sim/route_torch/fused/operators.h"
#include "ascend_sim/route_torch/fused/sequences.h"

namespace onesided::sim {
namespace {

// Values of `sparse_mode`.
constexpr std::int64_t kGivenMask = 0;
constexpr std::int64_t kWholeMask = 1;
constexpr std::int64_t kCausalFromStart = 2;
constexpr std::int64_t kCausalToEnd = 3;
constexpr std::int64_t kBand = 4;

// A call of npu_fused_infer_attention_score or its second version. A value.
struct FusedCall {
  std::string name;
  at::Tensor query, key, value, query_rope, key_rope, mask, table;
  std::vector<std::int64_t> query_lengths, key_lengths;
  std::string input_layout, output_layout;
  std::int64_t heads = 0, key_heads = 0, sparse_mode = 0, block_size = 0, before = 0, after = 0;
  double scale = 1.0;
  bool with_log_sum = false;
};

FusedCall read_call(Arguments& arguments) {
  const bool second = arguments.has("num_query_heads");
  FusedCall call;
  call.name = arguments.operator_name();
  call.query = arguments.tensor("query");
  call.key = arguments.tensor("key");
  call.value = arguments.tensor("value");
  call.query_rope = arguments.tensor_or_none("query_rope");
  call.key_rope = arguments.tensor_or_none("key_rope");
  call.mask = arguments.tensor_or_none("atten_mask");
  call.table = arguments.tensor_or_none("block_table");
  call.query_lengths = arguments.integers(second ? "actual_seq_qlen" : "actual_seq_lengths");
  call.key_lengths = arguments.integers(second ? "actual_seq_kvlen" : "actual_seq_lengths_kv");
  call.heads = arguments.integer(second ? "num_query_heads" : "num_heads");
  call.key_heads = arguments.integer("num_key_value_heads");
  if (call.key_heads == 0) call.key_heads = call.heads;
  call.scale = arguments.number(second ? "softmax_scale" : "scale");
  call.before = arguments.integer("pre_tokens");
  call.after = arguments.integer("next_tokens");
  call.sparse_mode = arguments.integer("sparse_mode");
  call.block_size = arguments.integer("block_size");
  call.with_log_sum = arguments.flag(second ? "return_softmax_lse" : "softmax_lse_flag");
  arguments.integer("inner_precise");  // a choice of the hardware's arithmetic
  const std::string layouts = arguments.text("input_layout");
  const auto middle = layouts.find('_');
  call.input_layout = layouts.substr(0, middle);
  call.output_layout = middle == std::string::npos ? call.input_layout : layouts.substr(middle + 1);
  return call;
}

// A tensor of one of the layouts as a list of sequences, each [heads, tokens, width]. `lengths`: tokens of each
// sequence (of TND: the running sum); empty: all.
std::vector<at::Tensor> cut(const FusedCall& call, const at::Tensor& x, std::int64_t heads,
                            const std::vector<std::int64_t>& lengths) {
  const std::string& layout = call.input_layout;
  std::vector<at::Tensor> sequences;
  if (layout == "TND") {
    TORCH_CHECK(!lengths.empty(), call.name, ": the layout TND needs the lengths of the sequences");
    std::int64_t start = 0;
    for (const std::int64_t end : lengths) {
      TORCH_CHECK(end >= start && end <= x.size(0), call.name, ": the running sums of the lengths reach ", end, " of ",
                  x.size(0), " tokens after ", start);
      sequences.push_back(x.narrow(0, start, end - start).transpose(0, 1));
      start = end;
    }
    return sequences;
  }
  at::Tensor by_head;
  if (layout == "BSH") {
    by_head = x.unflatten(-1, {heads, -1}).transpose(1, 2);
  } else if (layout == "BSND") {
    by_head = x.transpose(1, 2);
  } else {
    TORCH_CHECK(layout == "BNSD", call.name, ": input_layout '", layout,
                "' is not simulated; use TND, BSH, BSND or BNSD");
    by_head = x;
  }
  for (std::int64_t i = 0; i < by_head.size(0); ++i) {
    at::Tensor one = by_head.select(0, i);
    if (!lengths.empty()) one = one.narrow(1, 0, lengths[lengths.size() == 1 ? 0 : static_cast<std::size_t>(i)]);
    sequences.push_back(std::move(one));
  }
  return sequences;
}

// A paged cache as [blocks, block_size, heads, width]. Four dimensions mean that heads come before the block's tokens.
at::Tensor pages_of(const FusedCall& call, const at::Tensor& cache) {
  TORCH_CHECK(cache.dim() == 3 || cache.dim() == 4, call.name, ": a paged cache has 3 or 4 dimensions, not ",
              cache.dim());
  const at::Tensor pages = cache.dim() == 4 ? cache.transpose(1, 2) : cache.unflatten(-1, {call.key_heads, -1});
  TORCH_CHECK(pages.size(1) == call.block_size, call.name, ": block_size ", call.block_size,
              " for a cache with blocks of ", pages.size(1));
  return pages;
}

std::vector<at::Tensor> keys_of(const FusedCall& call, const at::Tensor& x, std::size_t count) {
  if (!call.table.defined()) return cut(call, x, call.key_heads, call.key_lengths);
  TORCH_CHECK(call.key_lengths.size() >= count, call.name, ": a paged cache needs the length of each of ", count,
              " sequences, not ", call.key_lengths.size());
  const at::Tensor pages = pages_of(call, x);
  std::vector<at::Tensor> sequences;
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor blocks = call.table.select(0, static_cast<std::int64_t>(i));
    sequences.push_back(read_pages(pages, blocks, call.key_lengths[i]).transpose(0, 1));
  }
  return sequences;
}

// What sequence `i` must not see.
at::Tensor hidden_in(const FusedCall& call, std::int64_t i, std::int64_t queries, std::int64_t keys) {
  const at::Tensor row = at::arange(queries).unsqueeze(1);
  const at::Tensor column = at::arange(keys).unsqueeze(0);
  switch (call.sparse_mode) {
    case kGivenMask:
    case kWholeMask: {
      if (!call.mask.defined()) return {};
      at::Tensor mask = call.mask.to(at::kBool);
      while (mask.dim() > 2) mask = mask.select(0, mask.size(0) == 1 ? 0 : i);
      return mask.narrow(0, 0, queries).narrow(1, 0, keys);
    }
    case kCausalFromStart: return column > row;
    case kCausalToEnd: return causal_to_the_end(queries, keys);
    case kBand: {
      const at::Tensor own = row + (keys - queries);
      return (column > own + call.after).logical_or(column < own - call.before);
    }
    default: TORCH_CHECK(false, call.name, ": sparse_mode ", call.sparse_mode, " is not simulated; use 0 to 4");
  }
}

// The sequences' outputs ([heads, tokens, width] each) in the layout that was asked for.
at::Tensor join(const FusedCall& call, const std::vector<at::Tensor>& outputs) {
  const std::string& layout = call.output_layout;
  if (layout == "TND") return at::cat(outputs, 1).transpose(0, 1).contiguous();
  if (layout == "NTD") return at::cat(outputs, 1).contiguous();
  const at::Tensor by_head = at::stack(outputs, 0);
  if (layout == "BNSD") return by_head.contiguous();
  if (layout == "BSND") return by_head.transpose(1, 2).contiguous();
  if (layout == "NBSD") return by_head.transpose(0, 1).contiguous();
  TORCH_CHECK(layout == "BSH", call.name, ": output layout '", layout, "' is not simulated");
  return by_head.transpose(1, 2).flatten(2).contiguous();
}

Results compute(const FusedCall& call) {
  constexpr std::int64_t kUnlimited = std::numeric_limits<std::int32_t>::max();
  TORCH_CHECK(call.sparse_mode == kBand || call.before >= kUnlimited, call.name, ": pre_tokens ", call.before,
              " outside of sparse_mode 4 is not simulated");
  const at::Tensor query = call.query_rope.defined() ? at::cat({call.query, call.query_rope}, -1) : call.query;
  const std::vector<at::Tensor> queries = cut(call, query, call.heads, call.query_lengths);
  std::vector<at::Tensor> keys = keys_of(call, call.key, queries.size());
  const std::vector<at::Tensor> values = keys_of(call, call.value, queries.size());
  const std::vector<at::Tensor> ropes =
      call.key_rope.defined() ? keys_of(call, call.key_rope, queries.size()) : std::vector<at::Tensor>();
  TORCH_CHECK(keys.size() == queries.size(), call.name, ": ", queries.size(), " sequences of queries, ", keys.size(),
              " of keys");
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> log_sums;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    if (!ropes.empty()) keys[i] = at::cat({keys[i], ropes[i]}, -1);
    const at::Tensor hidden = hidden_in(call, static_cast<std::int64_t>(i), queries[i].size(1), keys[i].size(1));
    const Attended attended = attend({queries[i], keys[i], values[i]}, call.scale, hidden);
    outputs.push_back(attended.output.to(call.query.scalar_type()));
    log_sums.push_back(attended.log_sum);
  }
  if (!call.with_log_sum) return {join(call, outputs), at::empty({0}, at::kFloat)};
  const bool flat = call.input_layout == "TND";  // [tokens, heads, 1], otherwise [batch, heads, tokens, 1]
  const at::Tensor log_sum = flat ? at::cat(log_sums, 1).transpose(0, 1) : at::stack(log_sums, 0);
  return {join(call, outputs), log_sum.unsqueeze(-1).contiguous()};
}

}  // namespace

Results fused_infer_attention(Arguments& arguments) {
  const FusedCall call = read_call(arguments);
  arguments.refuse_others();
  return compute(call);
}

Results fused_infer_attention_out(Arguments& arguments) {
  const FusedCall call = read_call(arguments);
  arguments.tensor_or_none("workspace");
  const std::vector<at::Tensor> given = arguments.tensors("out");
  arguments.refuse_others();
  const Results results = compute(call);
  TORCH_CHECK(given.size() == 2, call.name, ": out takes two tensors, not ", given.size());
  given[0].copy_(results[0].view(given[0].sizes()));
  if (call.with_log_sum) given[1].copy_(results[1].view(given[1].sizes()));
  return given;
}

Results paged_attention(Arguments& arguments) {
  const at::Tensor query = arguments.tensor("query");
  const at::Tensor key_cache = arguments.tensor("key_cache");
  const at::Tensor value_cache = arguments.tensor("value_cache");
  const at::Tensor table = arguments.tensor("block_table");
  const at::Tensor lengths = arguments.tensor("context_lens").to(at::kLong);
  const at::Tensor out = arguments.tensor("out");
  const double scale = arguments.number("scale_value");
  const std::int64_t heads = arguments.integer("num_heads");
  arguments.integer("num_kv_heads");  // the cache's own shape says it
  arguments.tensor_or_none("workspace");
  arguments.refuse_others();
  const at::Tensor by_head = query.reshape({query.size(0), heads, -1});
  for (std::int64_t i = 0; i < lengths.numel(); ++i) {
    const std::int64_t length = lengths[i].item<std::int64_t>();
    const auto pages = [&](const at::Tensor& cache) { return read_pages(cache, table[i], length).transpose(0, 1); };
    const Attended attended = attend({by_head[i].unsqueeze(1), pages(key_cache), pages(value_cache)}, scale, {});
    out[i].copy_(attended.output.view_as(out[i]));
  }
  return {};
}

// Attention of one ring step of a latent-attention model, joined to what earlier steps gave.
Results ring_mla(Arguments& arguments) {
  const auto wide = [&](const char* first, const char* second) {
    return at::cat({arguments.tensor(first), arguments.tensor(second)}, -1);
  };
  const at::Tensor query = wide("q_nope", "q_rope");
  const at::Tensor key = wide("k_nope", "k_rope");
  const at::Tensor value = arguments.tensor("value");
  const at::Tensor lengths = arguments.tensor("seqlen").to(at::kLong).contiguous();
  const std::string mask_type = arguments.text_or_none("mask_type").value_or("mask_type_triu");
  const std::string calculation = arguments.text_or_none("calc_type").value_or("calc_type_default");
  const double scale = arguments.number("qk_scale");
  at::Tensor earlier = arguments.tensor_or_none("pre_out");
  at::Tensor earlier_sum = arguments.tensor_or_none("prev_lse");
  Results given;
  if (arguments.has("output")) given = {arguments.tensor("output"), arguments.tensor("softmax_lse")};
  for (const char* unused : {"head_num", "kv_head_num"}) arguments.integer(unused);  // the shapes say them
  arguments.tensor_or_none("mask");                                                  // mask_type says it
  arguments.text_or_none("kernel_type");
  const std::string layout = arguments.text_or_none("input_layout").value_or("type_bsnd");
  arguments.refuse_others();
  TORCH_CHECK(mask_type == "mask_type_triu" || mask_type == "no_mask", "npu_ring_mla: mask_type '", mask_type,
              "' is not simulated");
  TORCH_CHECK(layout == "type_bsnd", "npu_ring_mla: input_layout '", layout, "' is not simulated");
  const bool joined = calculation != "calc_type_first_ring" && earlier.defined();
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> sums;
  const bool two = lengths.dim() == 2;  // the queries' lengths, then the keys'
  std::int64_t query_start = 0;
  std::int64_t key_start = 0;
  for (std::int64_t i = 0; i < lengths.size(-1); ++i) {
    const std::int64_t queries = (two ? lengths[0][i] : lengths[i]).item<std::int64_t>();
    const std::int64_t keys = (two ? lengths[1][i] : lengths[i]).item<std::int64_t>();
    const auto part = [](const at::Tensor& x, std::int64_t start, std::int64_t length) {
      return x.narrow(0, start, length).transpose(0, 1);
    };
    const at::Tensor hidden = mask_type == "mask_type_triu" ? causal_to_the_end(queries, keys) : at::Tensor();
    const Attended attended = attend(
        {part(query, query_start, queries), part(key, key_start, keys), part(value, key_start, keys)}, scale, hidden);
    outputs.push_back(attended.output.transpose(0, 1));
    sums.push_back(attended.log_sum);
    query_start += queries;
    key_start += keys;
  }
  at::Tensor output = at::cat(outputs, 0);  // [tokens, heads, width]
  at::Tensor sum = at::cat(sums, 1);        // [heads, tokens]
  if (joined) {
    const at::Tensor before = earlier_sum.to(at::kFloat);
    const at::Tensor both = at::logaddexp(before, sum);
    const auto share = [&](const at::Tensor& part) { return (part - both).exp().transpose(0, 1).unsqueeze(-1); };
    output = earlier.to(at::kFloat) * share(before) + output * share(sum);
    sum = both;
  }
  if (given.empty()) return {output.to(query.scalar_type()), sum};
  given[0].copy_(output.view_as(given[0]));
  given[1].copy_(sum);
  return given;
}

}  // namespace onesided::sim
