// Weights lie in boxes: a parameter of a global shape is cut one way over the ranks that hold it and another way over
// those that read it. This computes which bytes of which holder go where, as rows at a fixed distance.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "onesided/base/result.h"

namespace onesided {

// One item of a transfer: `row_bytes` 0 is contiguous, else the rows lie as in RowShape. A value.
struct PlannedMove {
  std::uint32_t phase = 0;   // of the target box
  std::uint32_t holder = 0;  // who has the bytes
  std::uint64_t local = 0;   // address
  std::uint64_t item = 0;    // which range that the holder described
  std::uint64_t offset = 0;  // in it
  std::uint64_t nbytes = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t local_pitch = 0;
  std::uint64_t remote_pitch = 0;
};

// A value. Its size is linear in the pairs of boxes that meet.
struct BoxPlan {
  std::vector<PlannedMove> moves;  // by phase, then by holder, then by parameter
  std::uint64_t nbytes = 0;        // of all moves: the sum of the target boxes, each byte once
};

// Confined to one thread.
//
// Tables are rows of 64-bit words without gaps. A box: parameter, item, base, then for each dimension its offset in the
// global shape, then for each its size, then for each its stride in bytes. Of a source, item and base are a range that
// the holder described and the box's first byte in it; of a target, a phase and an address.
class BoxPlanner {
 public:
  static constexpr std::size_t kMaxDims = 8;

  // Per parameter: bytes of an element, number of dimensions, the global shape. PARAM_INVALID: not such a table.
  Result<void> add_parameters(std::vector<std::string> names, std::span<const std::uint64_t> table);
  // Boxes that one holder has. PARAM_INVALID: not such a table, or a box leaves its parameter; nothing is added.
  Result<void> add_sources(std::uint32_t holder, std::span<const std::uint64_t> table);
  Result<void> add_targets(std::span<const std::uint64_t> table);

  // Equal boxes of several holders are replicas: each is read from the holder with the least to send so far, and
  // `reader` decides between equals, so that several readers begin at different holders. PARAM_INVALID: sources that
  // overlap in part, sources that leave a hole in a target; names parameter and holder.
  Result<BoxPlan> plan(std::uint64_t reader) const;

 private:
  struct Parameter {
    std::string name;
    std::uint64_t element_bytes = 0;
    std::vector<std::uint64_t> shape;
  };
  struct Box {
    std::uint32_t parameter = 0;
    std::uint32_t holder = 0;
    std::uint64_t item = 0;
    std::uint64_t base = 0;
    std::size_t words = 0;  // in words_: offsets, sizes, strides
  };
  class Sources;  // of one parameter, replicas together

  Result<std::vector<Box>> decode(std::uint32_t holder, std::span<const std::uint64_t> table,
                                  std::vector<std::uint64_t>& words) const;
  Result<void> check_box(const Box& box, std::span<const std::uint64_t> words) const;
  std::span<const std::uint64_t> offsets(const Box& box) const;
  std::span<const std::uint64_t> sizes(const Box& box) const;
  std::span<const std::uint64_t> strides(const Box& box) const;
  std::uint64_t elements(const Box& box) const;
  bool same_place(const Box& a, const Box& b) const;
  bool meet(const Box& a, const Box& b) const;
  std::string where(const Box& box) const;
  Result<void> check_apart(const Parameter& parameter, std::span<const Box> unique) const;
  Error hole(const Box& target, std::uint64_t found, std::span<const Box> unique) const;
  Result<void> plan_parameter(std::vector<Box> sources, std::span<const Box> targets, std::uint64_t reader,
                              std::vector<std::uint64_t>& load, BoxPlan& plan) const;
  // Appends the moves of the part of `target` that `source` holds; returns its bytes.
  std::uint64_t append(const Box& source, const Box& target, std::vector<PlannedMove>& moves) const;

  std::vector<Parameter> parameters_;
  std::vector<std::uint64_t> words_;
  std::vector<Box> sources_;
  std::vector<Box> targets_;
};

}  // namespace onesided
