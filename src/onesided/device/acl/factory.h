// Ascend NPUs (real or simulated) as devices, through the libascendcl that this process has loaded. It is not linked,
// so that the same build runs where there is none.
#pragma once

#include "onesided/device/device.h"

namespace onesided {

// True if a libascendcl.so is loaded in this process. Cheap; may become true later, never false again.
bool acl_runtime_loaded();

// NPU number `device_id` (>= 0, in the numbering of this process). One object per device, which exists until the
// process ends. Thread-safe. NOT_FOUND: no runtime is loaded, or it has no such device. UNSUPPORTED: the runtime lacks
// a function.
Result<Device*> acl_device(int device_id);

}  // namespace onesided
