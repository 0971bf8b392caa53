// Does this build fit the torch_npu that is running? Asked before the first call goes through the allocator's virtual
// table: a table with other functions would be a crash, or worse a wrong answer.
#pragma once

#include <cstddef>
#include <string>

namespace onesided::torch_npu {

// Virtual functions of NPUAllocator in the headers that this build saw, destructors included.
std::size_t functions_compiled();

// Virtual functions in the table of the allocator that is current: consecutive entries that point at code of torch_npu
// or of libraries that torch_npu has them from.
std::size_t functions_running();

// The name of the current allocator's class, "c10_npu::NPUCachingAllocator::NpuCachingAllocator".
std::string running_class();

// A symbol of the running libraries that stands at another place in the table than here, in words; empty: none does.
std::string misplaced_symbol();

}  // namespace onesided::torch_npu
