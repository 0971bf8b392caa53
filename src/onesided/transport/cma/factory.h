// The cma transport reaches host memory without a file (malloc, numpy) by the kernel's cross-memory attach: one system
// call for up to 1024 pieces, no intermediate copy, no action by the owner.
#pragma once

#include <memory>

#include "onesided/transport/transport.h"

namespace onesided {

// Reaches processes of the same host and user to which the kernel allows this process to attach (connect() tries it).
// On the owner's side, if the Yama module requires a process to declare which process may attach to it, the local peer
// that connected last is declared: the kernel keeps one declaration per process.
std::unique_ptr<Transport> make_cma_transport();

}  // namespace onesided
