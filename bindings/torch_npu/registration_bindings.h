// Bindings for registration of segments with an engine, called by module.cc.
#pragma once

#include <nanobind/nanobind.h>

#include "aligned_allocator.h"

namespace onesided::torch_npu {

// The aligned pool with this id. Throws ValueError if there is none.
AlignedPoolPtr pool_with(PoolId id);

void bind_registrations(nanobind::module_& module);

}  // namespace onesided::torch_npu
