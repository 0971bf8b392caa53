#include "onesided/node/host_pool.h"

#include <utility>

#include "onesided/base/log.h"
#include "onesided/device/host/factory.h"

namespace onesided {

Result<HostBuffer> HostBuffer::create(std::uint64_t nbytes, std::uint64_t alignment) {
  ONESIDED_TRY_ASSIGN(address, shared_host_device().allocate(nbytes, alignment));
  return HostBuffer(address, nbytes);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), nbytes_(std::exchange(other.nbytes_, 0)) {}

HostBuffer::~HostBuffer() {
  if (!address_) return;
  if (const auto freed = shared_host_device().free(address_, nbytes_); !freed.ok()) {
    log_line(LogLevel::kError, freed.error().to_string());
  }
}

Result<std::unique_ptr<Pool>> create_host_pool(const PoolOptions& options) {
  Device& device = shared_host_device();
  return Pool::create(device, make_prefaulted_source(device), options);
}

}  // namespace onesided
