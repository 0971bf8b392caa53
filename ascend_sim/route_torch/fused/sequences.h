// Attention by its definition, one sequence after another, over CPU tensors in float32.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace onesided::sim {

// One sequence: query [query heads, queries, width], key [key heads, keys, width], value [key heads, keys, value
// width]. Each key head serves query heads / key heads query heads that follow each other.
struct Sequence {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

// Output [query heads, queries, value width], and the logarithm of the sum of exponentials [query heads, queries].
// A query that sees no key gives zeros and minus infinity.
struct Attended {
  at::Tensor output;
  at::Tensor log_sum;
};

// `hidden`: true where a query must not see a key, broadcastable to [queries, keys]; undefined: all are seen.
Attended attend(const Sequence& sequence, double scale, const at::Tensor& hidden);

// Which keys a query must not see: those later than query position + (keys - queries), the causal rule aligned to the
// end of both.
at::Tensor causal_to_the_end(std::int64_t queries, std::int64_t keys);

// The rows that a sequence has in a paged cache ([blocks, block_size, heads, width]), in order: [length, heads, width].
at::Tensor read_pages(const at::Tensor& cache, const at::Tensor& blocks, std::int64_t length);

}  // namespace onesided::sim
