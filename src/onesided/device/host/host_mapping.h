// mmap with an alignment of more than a page, and sealed memfds.
#pragma once

#include <cstdint>

#include "onesided/base/fd.h"
#include "onesided/base/result.h"

namespace onesided {

// Maps nbytes of anonymous memory (or of `file` from its start, when valid) at an address that is a multiple of
// `alignment` (a power of two, at least a page). nbytes is a multiple of the page. Exhausted: RESOURCE_EXHAUSTED.
Result<void*> map_aligned(std::uint64_t nbytes, std::uint64_t alignment, const Fd& file);

// Unmaps a whole mapping.
void unmap(void* base, std::uint64_t nbytes);

// A memfd of exactly nbytes that can neither shrink nor grow again, so that no reader in another process can fault.
Result<Fd> create_sealed_memfd(std::uint64_t nbytes);

// Size of the machine's memory, and its available part, as reported by the kernel.
std::uint64_t host_total_bytes();
std::uint64_t host_available_bytes();

}  // namespace onesided
