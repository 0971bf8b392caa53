// The ascend transport: on real NPUs the vendor's engine, HIXL, moves the bytes. Its library is loaded at run time.
// Without it the transport exists but reaches no peer and reports the reason.
#pragma once

#include <memory>
#include <string>

#include "onesided/transport/transport.h"

namespace onesided {

struct AscendTransportOptions {
  // An address of this host that peers can reach; HIXL listens there on a port of its own.
  std::string host = "127.0.0.1";
  // As for dlopen; "" means $ONESIDED_HIXL_LIBRARY, or "libcann_hixl.so" if that is not set.
  std::string library;
};

// HIXL runs in the device context that is current on the calling thread now. Never null.
std::unique_ptr<Transport> make_ascend_transport(const AscendTransportOptions& options);

}  // namespace onesided
