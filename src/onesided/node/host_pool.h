// Host memory that peers can map: single buffers (HostBuffer), or a growing pool of pre-faulted, reused segments for
// receive buffers and for weights on the host.
#pragma once

#include <cstdint>
#include <memory>

#include "onesided/memory/pool.h"

namespace onesided {

// Owns exportable (memfd) host memory, initially zero. A movable value; one thread destroys it.
class HostBuffer {
 public:
  // PARAM_INVALID: nbytes is 0, or alignment is not a power of two. RESOURCE_EXHAUSTED: the machine does not have
  // enough memory.
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

// A pool of exportable host memory whose pages are allocated before their first use. PARAM_INVALID as Pool::create().
Result<std::unique_ptr<Pool>> create_host_pool(const PoolOptions& options);

}  // namespace onesided
