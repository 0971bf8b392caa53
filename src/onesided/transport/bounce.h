// Memory that the host cannot touch is copied through its device; where neither side of a copy can be touched, the
// bytes go through a buffer of ours.
#pragma once

#include <cstdint>
#include <memory>

#include "onesided/base/result.h"
#include "onesided/device/device.h"

namespace onesided {

// [to, to + nbytes) on `to_device` from [from, from + nbytes) on `from_device`; a null device is memory that the host
// can touch. Blocks until the bytes are there.
Result<void> copy_between(Device* to_device, std::uint64_t to, Device* from_device, std::uint64_t from,
                          std::uint64_t nbytes);

// A buffer of kPieceBytes that belongs to the calling thread.
void* thread_bounce_buffer();

}  // namespace onesided
