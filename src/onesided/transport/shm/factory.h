// The shm transport. Memory that lies in a file (simulated NPUs, host_pool) is mapped once by the peer and then copied
// in user space: without a system call, without a thread of the owner, and also while the owner is suspended.
#pragma once

#include <memory>

#include "onesided/transport/transport.h"

namespace onesided {

// Reaches peers of the same host and user.
std::unique_ptr<Transport> make_shm_transport();

}  // namespace onesided
