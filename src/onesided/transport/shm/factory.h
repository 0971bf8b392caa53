// Memory that lies in a file (simulated NPUs, host_pool) is mapped once by the peer and then copied in user space:
// no system call, no thread of the owner's, and it works while the owner is frozen.
#pragma once

#include <memory>

#include "onesided/transport/transport.h"

namespace onesided {

// Reaches peers of the same host and user.
std::unique_ptr<Transport> make_shm_transport();

}  // namespace onesided
