// Checks of memory that the program owns: it may be mapped read-only, or be unmapped. Accesses that would fault in this
// process, possibly on a peer's request, become errors.
#pragma once

#include <cstdint>

namespace onesided {

// True if the whole range is mapped in this process. Reads the list of mappings and touches no page. Any thread.
bool is_mapped(std::uint64_t address, std::uint64_t nbytes);

// True if the whole range is mapped and writable according to the kernel. Queries each mapping of the range (before
// Linux 6.11: all mappings below its end) and touches no page. Any thread.
bool is_writable(std::uint64_t address, std::uint64_t nbytes);

// Like memcpy, but returns false if a byte cannot be read or written; then some bytes may have been copied. For small
// copies that must not fault, because it costs a system call. Any thread.
bool copy_unless_it_faults(void* to, const void* from, std::uint64_t nbytes);

}  // namespace onesided
