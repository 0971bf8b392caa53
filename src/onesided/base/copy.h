// Why: the one place with architecture-specific code: copies that are too large for the caches go around them.
#pragma once

#include <cstdint>

namespace onesided {

// How large the whole transfer is that a copy is a part of: decides whether the target is worth a place in the cache.
enum class CopyKind { kCached, kStreaming };

// memcpy. The ranges do not overlap. Any thread. After a streaming copy the bytes are visible to other threads as after
// any other store.
void copy_bytes(void* to, const void* from, std::uint64_t nbytes, CopyKind kind);

}  // namespace onesided
