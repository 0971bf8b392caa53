// On real NPUs the bytes are moved by the vendor's engine, HIXL. Its library is loaded at run time; without it the
// transport exists, reaches nobody and says why.
#pragma once

#include <memory>
#include <string>

#include "onesided/transport/transport.h"

namespace onesided {

struct AscendTransportOptions {
  // An address of this host that peers can reach; HIXL listens there on a port of its own.
  std::string host = "127.0.0.1";
  // As dlopen takes it; "" means $ONESIDED_HIXL_LIBRARY, else "libcann_hixl.so".
  std::string library;
};

// HIXL runs in the device context that is current on the calling thread now. Never null.
std::unique_ptr<Transport> make_ascend_transport(const AscendTransportOptions& options);

}  // namespace onesided
