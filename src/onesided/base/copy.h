// The one place with architecture-specific code: copies that are too large for the caches go around them.
#pragma once

#include <cstdint>

namespace onesided {

// memcpy: the ranges do not overlap. However it is done, the bytes are visible to other threads as after any other
// store. Any thread.
void copy_bytes(void* to, const void* from, std::uint64_t nbytes);

}  // namespace onesided
