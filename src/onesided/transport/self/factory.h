// An engine may name itself as the peer; the bytes then never leave the process.
#pragma once

#include <memory>

#include "onesided/transport/transport.h"

namespace onesided {

// The link of an engine to itself. Overlapping ranges are moved as memmove does.
std::unique_ptr<CopyLink> make_self_link();

}  // namespace onesided
