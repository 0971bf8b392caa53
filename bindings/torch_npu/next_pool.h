// Torch_npu's C++ MemPool has no room for an alignment. The Python side leaves a word for the very next pool that
// this thread constructs.
#pragma once

#include <optional>

#include "aligned_allocator.h"

namespace onesided::torch_npu {

// What declare_next_pool() left on this thread, taken once.
std::optional<NextPool> take_next_pool();

// An out-of-memory of the native allocator on this thread is about to be cured: observers need not hear of it.
bool native_oom_may_be_cured();

}  // namespace onesided::torch_npu
