// Bulk data has TCP connections of its own; each proves, before it carries a byte, that it belongs to a session.
#pragma once

#include <string>

#include "onesided/base/clock.h"
#include "onesided/base/fd.h"
#include "onesided/engine/endpoint.h"
#include "onesided/engine/handshake.h"
#include "onesided/transport/transport.h"

namespace onesided {

// Connects to the listener of an open session and proves both ways. Blocks; gives up when the session is lost. The
// socket is non-blocking with TCP_NODELAY set.
Result<Fd> open_data_stream(const PeerChannel& session, const SocketAddress& listener, const OpenedSession& opened,
                            std::string transport, Deadline deadline);

}  // namespace onesided
