// The planner of weights for Python. Tables and plans are bytes of 64-bit words, so that a plan of a million moves is
// one object.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "errors.h"
#include "interpreter_lock.h"
#include "onesided/node/weights/box_plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace onesided::python {
namespace {

std::vector<std::uint64_t> words_of(const nb::bytes& table) {
  if (table.size() % sizeof(std::uint64_t) != 0) raise_invalid("a table must be whole 64-bit words");
  std::vector<std::uint64_t> words(table.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), table.c_str(), table.size());
  return words;
}

// [(phase, holder, bytes, moves x 7 words: local, item, offset, nbytes, row_bytes, local_pitch, remote_pitch)]
nb::list parts_of(const BoxPlan& plan) {
  nb::list parts;
  for (std::size_t first = 0; first < plan.moves.size();) {
    std::vector<std::uint64_t> words;
    std::uint64_t nbytes = 0;
    std::size_t i = first;
    for (; i < plan.moves.size() && plan.moves[i].phase == plan.moves[first].phase &&
           plan.moves[i].holder == plan.moves[first].holder;
         ++i) {
      const auto& move = plan.moves[i];
      words.insert(words.end(), {move.local, move.item, move.offset, move.nbytes, move.row_bytes, move.local_pitch,
                                 move.remote_pitch});
      nbytes += move.nbytes;
    }
    parts.append(nb::make_tuple(plan.moves[first].phase, plan.moves[first].holder, nbytes,
                                nb::bytes(reinterpret_cast<const char*>(words.data()), words.size() * 8)));
    first = i;
  }
  return parts;
}

}  // namespace

void bind_weights(nb::module_& module) {
  nb::class_<BoxPlanner>(
      module, "BoxPlanner",
      "Which bytes of which holder go where, for parameters that lie in boxes. Confined to a thread.")
      .def(nb::init<>())
      .def(
          "add_parameters",
          [](BoxPlanner& self, std::vector<std::string> names, const nb::bytes& table) {
            unwrap(self.add_parameters(std::move(names), words_of(table)));
          },
          "names"_a, "table"_a, "Per parameter: bytes of an element, number of dimensions, global shape.")
      .def(
          "add_sources",
          [](BoxPlanner& self, std::uint32_t holder, const nb::bytes& table) {
            unwrap(self.add_sources(holder, words_of(table)));
          },
          "holder"_a, "table"_a,
          "Boxes: parameter, described range, byte offset in it; offsets, sizes, strides in bytes. PARAM_INVALID.")
      .def(
          "add_targets", [](BoxPlanner& self, const nb::bytes& table) { unwrap(self.add_targets(words_of(table))); },
          "table"_a, "Boxes: parameter, phase, address; offsets, sizes, strides in bytes. PARAM_INVALID.")
      .def(
          "plan",
          [](const BoxPlanner& self, std::uint64_t reader) {
            Result<BoxPlan> plan = Error(Status::kFailed, "no plan");
            {
              const Unlocked unlocked;
              plan = self.plan(reader);
            }
            return parts_of(unwrap(std::move(plan)));
          },
          "reader"_a = 0,
          "[(phase, holder, bytes, words of its moves)]. PARAM_INVALID: a hole or an overlap; names the parameter.");
}

}  // namespace onesided::python
