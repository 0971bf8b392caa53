// Parses the engine's options, which users give as strings. An unknown name or a value that cannot be honoured is an
// error that names it; it is never replaced by a default.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "onesided/base/result.h"

namespace onesided {

// A value.
struct EngineOptions {
  std::vector<std::string> transports;  // in order of preference; empty: all of this build, best first
  bool auto_connect = false;            // transfers and notifications connect on demand
  std::string auth_secret_file;         // empty: only peers of this host and user
  std::uint32_t worker_threads = 0;     // 0: processors - 1, at least 1
  std::uint32_t tcp_streams = 2;        // data connections to one peer
  std::string tcp_congestion;           // empty: cubic where the kernel has it, else the system's
  std::uint32_t heartbeat_ms = 2000;
  std::uint64_t max_outstanding = 65536;  // unfinished asynchronous transfers; further ones wait

  // `known_transports`: what "transports" may name. The secret's file may also come from ONESIDED_AUTH_SECRET_FILE.
  static Result<EngineOptions> parse(const std::map<std::string, std::string>& options,
                                     const std::vector<std::string>& known_transports);
};

}  // namespace onesided
