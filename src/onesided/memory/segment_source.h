// The source of a pool's raw memory: the device, a user's allocator library, or a source that pre-faults.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "onesided/device/device.h"

namespace onesided {

// Raw memory for one pool. Thread-safe; called without a lock of the pool.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  virtual std::string_view name() const = 0;
  // Requested lengths are multiples of this (a power of two).
  virtual std::uint64_t granule_bytes() const = 0;
  // Ranges usually start at multiples of this, independent of the request; the pool checks and corrects.
  virtual std::uint64_t natural_alignment() const = 0;
  // True if allocate() returns the requested alignment.
  virtual bool honours_alignment() const = 0;
  // Bytes that must stay readable behind the last block, because kernels read past a tensor's end, and that the source
  // does not keep itself.
  virtual std::uint64_t guard_bytes() const = 0;
  // Allocates raw memory. RESOURCE_EXHAUSTED: exhausted, no state has changed. `stream` is the first stream that uses
  // the memory.
  virtual Result<void*> allocate(std::uint64_t nbytes, std::uint64_t alignment, Stream stream) = 0;
  // Frees a range exactly as returned by allocate(), once. The caller ensures that all work that uses it has ended.
  virtual Result<void> free(void* base, std::uint64_t nbytes, Stream stream) = 0;
};

// The device's own allocation. `device` must outlive the source.
std::unique_ptr<SegmentSource> make_device_source(Device& device);

// Host memory whose pages are allocated before the first use: a transfer into new pages runs at a tenth of the speed.
// `device` must be host-accessible and must outlive the source.
std::unique_ptr<SegmentSource> make_prefaulted_source(Device& device);

}  // namespace onesided
