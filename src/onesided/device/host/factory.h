// Host memory as a device, in two kinds. Both are process-wide, because an exported range must be found by whoever
// asks for it (engine, pool, bindings), however it was made.
#pragma once

#include "onesided/device/device.h"

namespace onesided {

// Plain anonymous memory: cheapest, but only processes that may ptrace this one can reach it.
// The device lives until the process ends. Thread-safe.
Device& anonymous_host_device();

// Memory in memfds sealed against shrinking: export_memory() works, another process can map it.
// The device lives until the process ends. Thread-safe.
Device& shared_host_device();

}  // namespace onesided
