#include "ascend_sim/ops/strided.h"

#include <algorithm>
#include <cstring>

namespace onesided::sim {
namespace {

// One dimension of the loop, in bytes.
struct Loop {
  std::int64_t size;
  std::int64_t to_step;
  std::int64_t from_step;
};

// Drops dimensions of one element and joins neighbours that are dense in both boxes, so that a dense box is one memcpy.
std::vector<Loop> make_loops(const Dims& sizes, const StridedBox& to, const StridedBox& from, std::int64_t element) {
  std::vector<Loop> loops;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    const Loop loop{sizes[i], to.strides[i] * element, from.strides[i] * element};
    if (!loops.empty() && loops.back().to_step == loop.to_step * loop.size &&
        loops.back().from_step == loop.from_step * loop.size) {
      loops.back() = {loops.back().size * loop.size, loop.to_step, loop.from_step};
    } else {
      loops.push_back(loop);
    }
  }
  return loops;
}

void copy_row(std::byte* to, const std::byte* from, const Loop& loop, std::size_t element) {
  if (loop.to_step == static_cast<std::int64_t>(element) && loop.from_step == loop.to_step) {
    std::memmove(to, from, static_cast<std::size_t>(loop.size) * element);
    return;
  }
  for (std::int64_t i = 0; i < loop.size; ++i) std::memmove(to + i * loop.to_step, from + i * loop.from_step, element);
}

}  // namespace

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size());
  std::int64_t step = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(dims[i], 1);
  }
  return strides;
}

bool box_fits(const Dims& sizes, const StridedBox& box, std::size_t element_bytes, std::uint64_t buffer_bytes) {
  if (sizes.size() != box.strides.size()) return false;
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; })) return false;
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  // 128 bits: sizes and strides come from outside and their products may not wrap unnoticed.
  __extension__ using Wide = __int128;
  Wide lowest = box.offset;
  Wide highest = box.offset;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Wide reach = static_cast<Wide>(sizes[i] - 1) * box.strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  return lowest >= 0 && (highest + 1) * static_cast<Wide>(element_bytes) <= static_cast<Wide>(buffer_bytes);
}

void copy_strided(const Dims& sizes, const StridedBox& to, const StridedBox& from, std::size_t element_bytes) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  const auto element = static_cast<std::int64_t>(element_bytes);
  std::vector<Loop> loops = make_loops(sizes, to, from, element);
  if (loops.empty()) loops.push_back({1, element, element});
  const Loop inner = loops.back();
  loops.pop_back();
  std::byte* to_at = to.data + to.offset * element;
  const std::byte* from_at = from.data + from.offset * element;
  std::vector<std::int64_t> index(loops.size(), 0);
  while (true) {
    copy_row(to_at, from_at, inner, element_bytes);
    std::size_t dim = loops.size();
    while (dim > 0) {
      const Loop& loop = loops[dim - 1];
      to_at += loop.to_step;
      from_at += loop.from_step;
      if (++index[dim - 1] < loop.size) break;
      to_at -= loop.to_step * loop.size;
      from_at -= loop.from_step * loop.size;
      index[--dim] = 0;
    }
    if (dim == 0) return;
  }
}

}  // namespace onesided::sim
