// Copies of memory that the host cannot access, through its device. If the host can access neither side, the bytes go
// through a bounce buffer.
#pragma once

#include <cstdint>
#include <memory>

#include "onesided/base/result.h"
#include "onesided/device/device.h"

namespace onesided {

// Copies [from, from + nbytes) on `from_device` to [to, to + nbytes) on `to_device`; a null device means memory that
// the host can access. Blocks until the copy is complete.
Result<void> copy_between(Device* to_device, std::uint64_t to, Device* from_device, std::uint64_t from,
                          std::uint64_t nbytes);

// A buffer of kPieceBytes that belongs to the calling thread.
void* thread_bounce_buffer();

}  // namespace onesided
