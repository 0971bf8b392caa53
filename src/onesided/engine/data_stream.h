// TCP connections for bulk data. Before a connection carries data, both ends prove that it belongs to a session.
#pragma once

#include <string>

#include "onesided/base/clock.h"
#include "onesided/base/fd.h"
#include "onesided/engine/endpoint.h"
#include "onesided/engine/handshake.h"
#include "onesided/transport/transport.h"

namespace onesided {

// Connects to the listener of an open session; both ends prove the session to each other. Blocks until done, until the
// deadline, or until the session is lost. The returned socket is non-blocking and has TCP_NODELAY set.
Result<Fd> open_data_stream(const PeerChannel& session, const SocketAddress& listener, const OpenedSession& opened,
                            std::string transport, Deadline deadline);

}  // namespace onesided
