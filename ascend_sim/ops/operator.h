// Unmodified torch_npu reaches device memory also through "operators by name" (aclopCompileAndExecute). Those that
// move memory live here, in a table by name; everything else is routed to PyTorch's CPU kernels above (route_torch).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ascend_sim/acl/tensor.h"
#include "onesided/base/result.h"

namespace onesided::sim {

using Dims = std::vector<std::int64_t>;

// One tensor of a call: its bytes lie in `data`, dense in row-major order. A value; whoever made it keeps the memory.
struct Operand {
  DataType type = DataType::kFloat;
  Dims dims;
  std::byte* data = nullptr;
  std::uint64_t nbytes = 0;

  // Elements by the dimensions; 1 for a scalar.
  std::int64_t count() const;
};

struct OperatorCall {
  std::string name;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  const Attributes* attributes = nullptr;  // null: none. Only valid while the operator is prepared.
};

// The work of a checked call, to be run once by a stream's worker.
using OperatorWork = std::function<void()>;

// Checks the whole call (types, shapes, bounds) now, so that what is queued cannot fail or touch memory that is not
// its own. NOT_FOUND for a name that is not in the table, PARAM_INVALID with words for a call that does not fit.
Result<OperatorWork> prepare_operator(const OperatorCall& call);

}  // namespace onesided::sim
