// Non-blocking scatter and gather on a socket, including the bookkeeping of moved bytes.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "onesided/base/result.h"

namespace onesided::tcp {

// A list of byte ranges that is consumed from the front. A value; does not own the bytes.
class ByteRuns {
 public:
  void add(void* data, std::size_t nbytes) {
    if (nbytes == 0) return;
    parts_.push_back({data, nbytes});
    left_ += nbytes;
  }
  void add(const void* data, std::size_t nbytes) { add(const_cast<void*>(data), nbytes); }
  void clear() {
    parts_.clear();
    first_ = 0;
    left_ = 0;
  }
  std::uint64_t left() const { return left_; }
  bool empty() const { return left_ == 0; }
  // The remaining ranges.
  std::span<iovec> front();
  void advance(std::uint64_t nbytes);
  // Copies up to `nbytes` from `data` into the front and advances; returns how much.
  std::size_t fill_from(const std::uint8_t* data, std::size_t nbytes);
  // The same into memory that may be read-only or unmapped; sets `faulted` if the front is.
  std::size_t fill_carefully_from(const std::uint8_t* data, std::size_t nbytes, bool& faulted);

 private:
  template <typename Copy>
  std::size_t fill(const std::uint8_t* data, std::size_t nbytes, Copy copy);

  std::vector<iovec> parts_;
  std::size_t first_ = 0;
  std::uint64_t left_ = 0;
};

// Sends as many bytes as the socket accepts now; may be 0. PEER_LOST: the stream broke.
Result<std::size_t> send_some(int socket, std::span<iovec> parts);
// Receives the bytes that have arrived; may be 0. PEER_LOST: the stream ended or broke.
Result<std::size_t> receive_some(int socket, std::span<iovec> parts);

// Sets TCP_NODELAY, keep-alive (to detect an unreachable host) and the congestion control ("": unchanged).
void set_up_stream(int socket, const std::string& congestion);
// True if the peer aborted the connection (RST): bytes that are still in the socket must not be used.
bool was_aborted(int socket);
// From now on, closing the socket aborts the connection.
void abort_on_close(int socket);

}  // namespace onesided::tcp
