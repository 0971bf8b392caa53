// Host memory that peers can map: one buffer at a time for the user (HostBuffer), or a growing pool of
// pre-faulted, reused segments for receive buffers and for weights that live on the host.
#pragma once

#include <cstdint>
#include <memory>

#include "onesided/memory/pool.h"

namespace onesided {

// Exportable (memfd) host memory, zeroed. Owns it. A value that moves; give it back from one thread.
class HostBuffer {
 public:
  // PARAM_INVALID: nothing asked, or not a power of two. RESOURCE_EXHAUSTED: the machine has not that much.
  static Result<HostBuffer> create(std::uint64_t nbytes, std::uint64_t alignment);
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&&) = delete;
  ~HostBuffer();

  void* address() const { return address_; }
  std::uint64_t nbytes() const { return nbytes_; }

 private:
  HostBuffer(void* address, std::uint64_t nbytes) : address_(address), nbytes_(nbytes) {}

  void* address_;
  std::uint64_t nbytes_;
};

// A pool over exportable host memory whose pages are present before their first use. PARAM_INVALID as Pool::create().
Result<std::unique_ptr<Pool>> create_host_pool(const PoolOptions& options);

}  // namespace onesided
