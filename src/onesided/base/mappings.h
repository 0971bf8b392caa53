// Memory that a program hands over is not ours: it may be mapped read-only, or be gone. What would be a fault of
// this process, and perhaps because a peer asked for it, becomes an answer.
#pragma once

#include <cstdint>

namespace onesided {

// All of the range is mapped in this process. Costs a walk over the mappings, touches no page. Any thread.
bool is_mapped(std::uint64_t address, std::uint64_t nbytes);

// All of the range is mapped and may be written, as far as the kernel says. Costs a look at each mapping of the range
// (before Linux 6.11: at all mappings below its end), touches no page. Any thread.
bool is_writable(std::uint64_t address, std::uint64_t nbytes);

// memcpy, but false where a byte cannot be read or written; some of them may have been copied then. For small copies
// that must not fault: it costs a system call. Any thread.
bool copy_unless_it_faults(void* to, const void* from, std::uint64_t nbytes);

}  // namespace onesided
