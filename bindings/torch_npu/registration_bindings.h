// Module.cc lists what Python sees; how segments are joined to an engine is a matter of its own.
#pragma once

#include <nanobind/nanobind.h>

#include "aligned_allocator.h"

namespace onesided::torch_npu {

// The aligned pool with this id. Throws ValueError: there is none.
AlignedPoolPtr pool_with(PoolId id);

void bind_registrations(nanobind::module_& module);

}  // namespace onesided::torch_npu
