#include "onesided/node/weights/box_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "onesided/base/rows.h"

namespace onesided {
namespace {

constexpr std::uint64_t kMaxWord = std::numeric_limits<std::uint64_t>::max();

bool product_fits(std::span<const std::uint64_t> factors, std::uint64_t product) {
  for (const auto factor : factors) {
    if (factor != 0 && product > kMaxWord / factor) return false;
    product *= factor;
  }
  return true;
}

// One dimension of the elements that are moved. A value.
struct Axis {
  std::uint64_t extent = 0, local = 0, remote = 0;  // elements, and bytes from one to the next on each side
};

// Axes of more than one element, outermost first, where neighbours that lie alike on both sides are one. Those that are
// contiguous on both sides have become `run`.
struct Axes {
  std::array<Axis, BoxPlanner::kMaxDims> all;
  std::size_t count = 0;
  std::uint64_t run = 0;

  void add_outermost_last(const Axis& axis) {
    if (axis.extent == 1) return;
    if (count == 0 && axis.local == run && axis.remote == run) {
      run *= axis.extent;
      return;
    }
    if (count > 0) {
      auto& inner = all[count - 1];
      if (axis.local == inner.local * inner.extent && axis.remote == inner.remote * inner.extent) {
        inner.extent *= axis.extent;
        return;
      }
    }
    all[count++] = axis;
  }
};

// Moves of `axes` from (move.local, move.offset) on: the longest axis becomes the rows, the others are stepped through.
void append_rows(Axes axes, PlannedMove move, std::vector<PlannedMove>& moves) {
  Axis rows;
  if (axes.count > 0) {
    auto* longest = std::max_element(axes.all.begin(), axes.all.begin() + static_cast<std::ptrdiff_t>(axes.count),
                                     [](const Axis& a, const Axis& b) { return a.extent < b.extent; });
    rows = *longest;
    std::move(longest + 1, axes.all.begin() + static_cast<std::ptrdiff_t>(axes.count), longest);
    --axes.count;
  }
  std::array<std::uint64_t, BoxPlanner::kMaxDims> index{};
  const PlannedMove first = move;
  while (true) {
    const std::uint64_t total = rows.extent == 0 ? 1 : rows.extent;
    for (std::uint64_t row = 0; row < total; row += kMaxRows) {
      const std::uint64_t count = std::min(kMaxRows, total - row);
      PlannedMove part = move;
      part.local += row * rows.local;
      part.offset += row * rows.remote;
      part.nbytes = count * axes.run;
      if (count > 1) {
        part.row_bytes = axes.run;
        part.local_pitch = rows.local;
        part.remote_pitch = rows.remote;
      }
      moves.push_back(part);
    }
    std::size_t axis = 0;
    while (axis < axes.count && ++index[axis] == axes.all[axis].extent) index[axis++] = 0;
    if (axis == axes.count) return;
    move = first;
    for (std::size_t i = 0; i < axes.count; ++i) {
      move.local += index[i] * axes.all[i].local;
      move.offset += index[i] * axes.all[i].remote;
    }
  }
}

bool continues(const PlannedMove& before, const PlannedMove& after) {
  return before.phase == after.phase && before.holder == after.holder && before.item == after.item &&
         before.row_bytes == 0 && after.row_bytes == 0 && before.local + before.nbytes == after.local &&
         before.offset + before.nbytes == after.offset;
}

void merge_neighbours(std::vector<PlannedMove>& moves) {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < moves.size(); ++i) {
    if (continues(moves[kept], moves[i]))
      moves[kept].nbytes += moves[i].nbytes;
    else
      moves[++kept] = moves[i];
  }
  moves.resize(std::min(moves.size(), kept + 1));
}

}  // namespace

Result<void> BoxPlanner::add_parameters(std::vector<std::string> names, std::span<const std::uint64_t> table) {
  std::vector<Parameter> added;
  for (auto& name : names) {
    Parameter parameter;
    parameter.name = std::move(name);
    if (table.size() < 2 || table[1] > kMaxDims || table.size() - 2 < table[1])
      return Error(Status::kParamInvalid, fmt::format("parameter {:?}: expected bytes of an element, at most {} "
                                                      "dimensions and a shape",
                                                      parameter.name, kMaxDims));
    parameter.element_bytes = table[0];
    const auto shape = table.subspan(2, table[1]);
    parameter.shape.assign(shape.begin(), shape.end());
    table = table.subspan(2 + table[1]);
    if (parameter.element_bytes == 0 || !product_fits(parameter.shape, parameter.element_bytes))
      return Error(Status::kParamInvalid,
                   fmt::format("parameter {:?} of shape [{}] and {} bytes an element: its bytes do "
                               "not fit 64 bits",
                               parameter.name, fmt::join(parameter.shape, ", "), parameter.element_bytes));
    added.push_back(std::move(parameter));
  }
  if (!table.empty())
    return Error(Status::kParamInvalid,
                 fmt::format("{} words too many after {} parameters", table.size(), names.size()));
  std::move(added.begin(), added.end(), std::back_inserter(parameters_));
  return {};
}

Result<std::vector<BoxPlanner::Box>> BoxPlanner::decode(std::uint32_t holder, std::span<const std::uint64_t> table,
                                                        std::vector<std::uint64_t>& words) const {
  std::vector<Box> boxes;
  while (!table.empty()) {
    if (table.size() < 3 || table[0] >= parameters_.size())
      return Error(Status::kParamInvalid, fmt::format("box {} of holder {}: no such parameter", boxes.size(), holder));
    Box box{static_cast<std::uint32_t>(table[0]), holder, table[1], table[2], words_.size() + words.size()};
    const std::size_t dims = 3 * parameters_[box.parameter].shape.size();
    if (table.size() - 3 < dims)
      return Error(Status::kParamInvalid, fmt::format("box {} of holder {} ends early", boxes.size(), holder));
    const auto own = table.subspan(3, dims);
    ONESIDED_TRY(check_box(box, own));
    words.insert(words.end(), own.begin(), own.end());
    boxes.push_back(box);
    table = table.subspan(3 + dims);
  }
  return boxes;
}

Result<void> BoxPlanner::check_box(const Box& box, std::span<const std::uint64_t> words) const {
  const auto& parameter = parameters_[box.parameter];
  const std::size_t dims = parameter.shape.size();
  std::uint64_t end = box.base;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::uint64_t offset = words[d], size = words[dims + d], stride = words[2 * dims + d];
    if (size == 0 || !range_within(offset, size, 0, parameter.shape[d]))
      return Error(Status::kParamInvalid,
                   fmt::format("parameter {:?}, holder {}: a box of {} elements from {} on leaves dimension {} of {}",
                               parameter.name, box.holder, size, offset, d, parameter.shape[d]));
    const std::uint64_t steps = size - 1;
    if (steps > 0 && (stride < parameter.element_bytes || stride > (kMaxWord - end) / steps))
      return Error(Status::kParamInvalid,
                   fmt::format("parameter {:?}, holder {}: a stride of {} bytes in dimension {}: expected at least {} "
                               "bytes, and a box that does not wrap around",
                               parameter.name, box.holder, stride, d, parameter.element_bytes));
    end += steps * stride;
  }
  if (!checked_add(end, parameter.element_bytes))
    return Error(Status::kParamInvalid,
                 fmt::format("parameter {:?}, holder {}: a box wraps around", parameter.name, box.holder));
  return {};
}

Result<void> BoxPlanner::add_sources(std::uint32_t holder, std::span<const std::uint64_t> table) {
  std::vector<std::uint64_t> words;
  ONESIDED_TRY_ASSIGN(boxes, decode(holder, table, words));
  words_.insert(words_.end(), words.begin(), words.end());
  sources_.insert(sources_.end(), boxes.begin(), boxes.end());
  return {};
}

Result<void> BoxPlanner::add_targets(std::span<const std::uint64_t> table) {
  std::vector<std::uint64_t> words;
  ONESIDED_TRY_ASSIGN(boxes, decode(0, table, words));
  words_.insert(words_.end(), words.begin(), words.end());
  targets_.insert(targets_.end(), boxes.begin(), boxes.end());
  return {};
}

std::span<const std::uint64_t> BoxPlanner::offsets(const Box& box) const {
  return std::span(words_).subspan(box.words, parameters_[box.parameter].shape.size());
}
std::span<const std::uint64_t> BoxPlanner::sizes(const Box& box) const {
  const std::size_t dims = parameters_[box.parameter].shape.size();
  return std::span(words_).subspan(box.words + dims, dims);
}
std::span<const std::uint64_t> BoxPlanner::strides(const Box& box) const {
  const std::size_t dims = parameters_[box.parameter].shape.size();
  return std::span(words_).subspan(box.words + 2 * dims, dims);
}

std::uint64_t BoxPlanner::elements(const Box& box) const {
  std::uint64_t product = 1;
  for (const auto size : sizes(box)) product *= size;
  return product;
}

bool BoxPlanner::same_place(const Box& a, const Box& b) const {
  return std::ranges::equal(offsets(a), offsets(b)) && std::ranges::equal(sizes(a), sizes(b));
}

bool BoxPlanner::meet(const Box& a, const Box& b) const {
  const auto a_from = offsets(a), a_size = sizes(a), b_from = offsets(b), b_size = sizes(b);
  for (std::size_t d = 0; d < a_from.size(); ++d)
    if (a_from[d] >= b_from[d] + b_size[d] || b_from[d] >= a_from[d] + a_size[d]) return false;
  return true;
}

std::string BoxPlanner::where(const Box& box) const {
  return fmt::format("[{}] + [{}]", fmt::join(offsets(box), ", "), fmt::join(sizes(box), ", "));
}

// Boxes in the order of their offsets: one that begins behind the end of another in the first dimension meets none of
// the following either.
Result<void> BoxPlanner::check_apart(const Parameter& parameter, std::span<const Box> unique) const {
  if (parameter.shape.empty()) return {};
  for (std::size_t i = 0; i < unique.size(); ++i) {
    const std::uint64_t end = offsets(unique[i])[0] + sizes(unique[i])[0];
    for (std::size_t k = i + 1; k < unique.size() && offsets(unique[k])[0] < end; ++k)
      if (meet(unique[i], unique[k]))
        return Error(
            Status::kParamInvalid,
            fmt::format("parameter {:?}: {} of holder {} and {} of holder {} overlap; ranks may hold the same "
                        "box or boxes apart",
                        parameter.name, where(unique[i]), unique[i].holder, where(unique[k]), unique[k].holder));
  }
  return {};
}

Error BoxPlanner::hole(const Box& target, std::uint64_t found, std::span<const Box> unique) const {
  const auto& parameter = parameters_[target.parameter];
  std::vector<std::string> held;
  for (const auto& box : unique.first(std::min<std::size_t>(unique.size(), 8)))
    held.push_back(fmt::format("{} of holder {}", where(box), box.holder));
  return {Status::kParamInvalid,
          fmt::format("parameter {:?} of shape [{}]: {} of the {} elements at {} are held by no rank; held are {}{}",
                      parameter.name, fmt::join(parameter.shape, ", "), elements(target) - found, elements(target),
                      where(target), held.empty() ? "no boxes" : fmt::format("{}", fmt::join(held, ", ")),
                      unique.size() > held.size() ? " and others" : "")};
}

std::uint64_t BoxPlanner::append(const Box& source, const Box& target, std::vector<PlannedMove>& moves) const {
  const auto& parameter = parameters_[source.parameter];
  PlannedMove move;
  move.phase = static_cast<std::uint32_t>(target.item);
  move.holder = source.holder;
  move.item = source.item;
  move.offset = source.base;
  move.local = target.base;
  Axes axes;
  axes.run = parameter.element_bytes;
  std::uint64_t nbytes = parameter.element_bytes;
  for (std::size_t d = parameter.shape.size(); d-- > 0;) {
    const std::uint64_t s_from = offsets(source)[d], t_from = offsets(target)[d];
    const std::uint64_t from = std::max(s_from, t_from);
    const std::uint64_t to = std::min(s_from + sizes(source)[d], t_from + sizes(target)[d]);
    const Axis axis{to - from, strides(target)[d], strides(source)[d]};
    move.offset += (from - s_from) * axis.remote;
    move.local += (from - t_from) * axis.local;
    nbytes *= axis.extent;
    axes.add_outermost_last(axis);
  }
  append_rows(axes, move, moves);
  return nbytes;
}

// Groups of equal boxes, in the order of their offsets.
class BoxPlanner::Sources {
 public:
  Sources(const BoxPlanner& planner, std::vector<Box> boxes) : boxes_(std::move(boxes)) {
    std::ranges::stable_sort(boxes_, [&](const Box& a, const Box& b) {
      const auto from = std::ranges::lexicographical_compare(planner.offsets(a), planner.offsets(b));
      if (from || !std::ranges::equal(planner.offsets(a), planner.offsets(b))) return from;
      return std::ranges::lexicographical_compare(planner.sizes(a), planner.sizes(b));
    });
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      if (i == 0 || !planner.same_place(boxes_[i - 1], boxes_[i])) {
        unique_.push_back(boxes_[i]);
        first_.push_back(i);
      }
    }
    first_.push_back(boxes_.size());
  }
  std::span<const Box> unique() const { return unique_; }
  std::span<const Box> replicas(std::size_t group) const {
    return std::span(boxes_).subspan(first_[group], first_[group + 1] - first_[group]);
  }

 private:
  std::vector<Box> boxes_;
  std::vector<Box> unique_;
  std::vector<std::size_t> first_;
};

// Moves of one parameter; `load` is what each holder has to send so far.
Result<void> BoxPlanner::plan_parameter(std::vector<Box> sources, std::span<const Box> targets, std::uint64_t reader,
                                        std::vector<std::uint64_t>& load, BoxPlan& plan) const {
  const auto& parameter = parameters_[targets[0].parameter];
  const Sources held(*this, std::move(sources));
  ONESIDED_TRY(check_apart(parameter, held.unique()));
  for (const auto& target : targets) {
    std::uint64_t found = 0;
    for (std::size_t group = 0; group < held.unique().size(); ++group) {
      const auto replicas = held.replicas(group);
      if (!meet(replicas[0], target)) continue;
      const auto* best = &replicas[reader % replicas.size()];
      for (std::size_t i = 1; i < replicas.size(); ++i) {
        const auto& other = replicas[(reader + i) % replicas.size()];
        if (load[other.holder] < load[best->holder]) best = &other;
      }
      const auto nbytes = append(*best, target, plan.moves);
      load[best->holder] += nbytes;
      found += nbytes;
    }
    plan.nbytes += found;
    if (found != elements(target) * parameter.element_bytes)
      return hole(target, found / parameter.element_bytes, held.unique());
  }
  return {};
}

Result<BoxPlan> BoxPlanner::plan(std::uint64_t reader) const {
  std::vector<std::vector<Box>> sources(parameters_.size()), targets(parameters_.size());
  std::uint32_t holders = 0;
  for (const auto& box : sources_) {
    sources[box.parameter].push_back(box);
    holders = std::max(holders, box.holder + 1);
  }
  for (const auto& box : targets_) targets[box.parameter].push_back(box);
  BoxPlan plan;
  std::vector<std::uint64_t> load(holders);
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    if (!targets[p].empty()) ONESIDED_TRY(plan_parameter(std::move(sources[p]), targets[p], reader, load, plan));
  std::ranges::stable_sort(plan.moves, [](const PlannedMove& a, const PlannedMove& b) {
    return a.phase != b.phase ? a.phase < b.phase : a.holder < b.holder;
  });
  merge_neighbours(plan.moves);
  return plan;
}

}  // namespace onesided
