// Where torch_npu's MemPool does not make its pool in C++, or routes every thread's allocations to it, onesided.npu
// does both through these.
#pragma once

#include <nanobind/nanobind.h>

namespace onesided::torch_npu {

void bind_older_pools(nanobind::module_& module);

}  // namespace onesided::torch_npu
