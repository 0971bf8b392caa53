// Reaches any peer, also on other hosts: several TCP streams a peer, from registered memory to registered memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "onesided/transport/transport.h"

namespace onesided {

struct TcpOptions {
  // Data streams towards each peer, 1..64. With two or more, the first is kept for small batches.
  std::uint32_t streams = 2;
  // Threads that move bytes, 1..64; shared by all peers.
  std::uint32_t threads = 1;
  // Congestion control of our sockets. Empty: cubic where the kernel has it (bbr, often the default, is about half as
  // fast on loopback), else the system's. A name the kernel does not have or allow: PARAM_INVALID.
  std::string congestion;
};

// The congestion control that sockets get with this option, "" for cubic where the kernel has it, else the system's.
// For stats.
Result<std::string> tcp_congestion_in_use(const std::string& wanted);

// `memory` is this engine's registered memory, for peers that read and write it; it must outlive the transport.
Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options, RegionAccess& memory);

}  // namespace onesided
