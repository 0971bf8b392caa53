// Passes the alignment of a new pool to the allocator. torch_npu's C++ MemPool has no parameter for it, so the Python
// side sets it for the next pool that this thread constructs.
#pragma once

#include <optional>

#include "aligned_allocator.h"

namespace onesided::torch_npu {

// Returns and removes the value that declare_next_pool() set on this thread.
std::optional<NextPool> take_next_pool();

// True while an out-of-memory error of the native allocator on this thread may be resolved by a retry: observers are
// not called.
bool native_oom_may_be_cured();

}  // namespace onesided::torch_npu
