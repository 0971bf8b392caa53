// The tcp transport. It reaches any peer, also on other hosts: several TCP streams per peer, from registered memory to
// registered memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "onesided/transport/transport.h"

namespace onesided {

struct TcpOptions {
  // Data streams to each peer, 1..64. With two or more, the first is reserved for small batches.
  std::uint32_t streams = 2;
  // Threads that move bytes, 1..64; shared by all peers.
  std::uint32_t threads = 1;
  // Congestion control of the sockets. Empty: cubic if the kernel has it (bbr, often the default, is about half as fast
  // on loopback), otherwise the system's default. PARAM_INVALID: a name that the kernel does not have or allow.
  std::string congestion;
};

// The congestion control that sockets get with this option, for stats.
Result<std::string> tcp_congestion_in_use(const std::string& wanted);

// `memory` is this engine's registered memory, which peers read and write; it must outlive the transport.
Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options, RegionAccess& memory);

}  // namespace onesided
