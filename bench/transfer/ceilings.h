// Every figure is a ratio to what the machine can do at best, measured in the same run: a copy over mapped memory,
// the system call with full vectors, a socket. Nothing here uses the engine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace onesided::bench {

// One range to fetch: byte offsets into the owner's buffer and into ours.
struct Range {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t nbytes = 0;
};

// The best raw copy of this machine: each way of copying is tried, the caller keeps the fastest.
enum class CopyWay { kMemcpy, kStrings, kNonTemporal };
std::vector<CopyWay> copy_ways();
void raw_copy(CopyWay way, char* to, const char* from, std::span<const Range> ranges);

// process_vm_readv with as many vectors as a call takes. False on an error.
bool raw_process_vm(int pid, char* to, const char* from, std::span<const Range> ranges);

// A plain TCP server on 127.0.0.1 that answers each request (a count, then ranges) with the bytes; runs on a thread of
// its own until the process ends. Returns the port.
std::uint16_t serve_raw_socket(const char* data, const std::string& congestion);
int connect_raw_socket(std::uint16_t port, const std::string& congestion);
bool raw_socket(int socket, char* to, std::span<const Range> ranges);

}  // namespace onesided::bench
