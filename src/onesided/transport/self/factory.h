// The link of an engine to itself, for an engine that names itself as the peer.
#pragma once

#include <memory>

#include "onesided/transport/transport.h"

namespace onesided {

// Overlapping ranges are copied as by memmove.
std::unique_ptr<CopyLink> make_self_link();

}  // namespace onesided
