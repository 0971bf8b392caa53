// Host memory without a file behind it (malloc, numpy) is reached by the kernel's cross-memory attach: one system
// call for up to 1024 pieces, no copy in between, no help from the owner.
#pragma once

#include <memory>

#include "onesided/transport/transport.h"

namespace onesided {

// Reaches processes of the same host and user that the kernel lets us attach to (connect() tries). On the owner's side,
// where the Yama module asks a process to name who may attach to it, it names the local peer that connected last: the
// kernel remembers one name per process.
std::unique_ptr<Transport> make_cma_transport();

}  // namespace onesided
