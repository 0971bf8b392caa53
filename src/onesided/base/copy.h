// Copies with non-temporal stores if they are larger than the caches. The only place with architecture-specific code.
#pragma once

#include <cstdint>

namespace onesided {

// Like memcpy: the ranges must not overlap, and the bytes are visible to other threads as after ordinary stores. Any
// thread.
void copy_bytes(void* to, const void* from, std::uint64_t nbytes);

}  // namespace onesided
