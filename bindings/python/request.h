// A request as Python owns it, for all bindings that submit transfers.
#pragma once

#include <memory>
#include <string_view>

#include "onesided/engine/engine.h"

namespace onesided::python {

// A request: a transfer, and whose it is.
struct Request {
  std::shared_ptr<Transfer> transfer;
  std::weak_ptr<Engine> engine;  // compared, never used
};

// "READ" or "WRITE". Raises EngineError PARAM_INVALID.
Op op_of(std::string_view name);

}  // namespace onesided::python
