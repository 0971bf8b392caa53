// Host memory as a device, in two kinds. Both are process-wide, because engine, pool and bindings must find an exported
// range regardless of how it was made.
#pragma once

#include "onesided/device/device.h"

namespace onesided {

// Plain anonymous memory: lowest cost, but only processes that may ptrace this one can access it. The device exists
// until the process ends. Thread-safe.
Device& anonymous_host_device();

// Memory in memfds sealed against shrinking: export_memory() works, and another process can map it. The device exists
// until the process ends. Thread-safe.
Device& shared_host_device();

}  // namespace onesided
