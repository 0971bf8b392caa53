// Ascend NPUs (real or simulated) as devices, through whichever libascendcl this process has loaded; we never link
// it, so that the same build runs where there is none.
#pragma once

#include "onesided/device/device.h"

namespace onesided {

// True when a libascendcl.so is loaded in this process. Cheap; may turn true later, never false again.
bool acl_runtime_loaded();

// NPU number `device_id` (>= 0, as this process counts them). One object per device, which lives until the process
// ends. Thread-safe. NOT_FOUND: no runtime is loaded, or it has no such device; UNSUPPORTED: the runtime lacks a
// function.
Result<Device*> acl_device(int device_id);

}  // namespace onesided
