// Where a pool's raw memory comes from is one question (the device, a user's allocator library, a source that
// pre-faults); how it is cut is another.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "onesided/device/device.h"

namespace onesided {

// Raw memory for one pool. Thread-safe; called with no lock of the pool held.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  virtual std::string_view name() const = 0;
  // Lengths asked are multiples of this (a power of two).
  virtual std::uint64_t granule_bytes() const = 0;
  // Starts of ranges are usually multiples of this, whatever is asked; the pool checks and copes.
  virtual std::uint64_t natural_alignment() const = 0;
  // Whether allocate() gives the alignment it is asked for.
  virtual bool honours_alignment() const = 0;
  // Bytes that must stay readable behind the last block, since kernels read past a tensor's end, and that the source
  // does not keep by itself.
  virtual std::uint64_t guard_bytes() const = 0;
  // Exhausted: RESOURCE_EXHAUSTED, no state change. `stream` is where the memory will be used first.
  virtual Result<void*> allocate(std::uint64_t nbytes, std::uint64_t alignment, Stream stream) = 0;
  // Gives back exactly what allocate() returned, once. All work that uses it has ended.
  virtual Result<void> free(void* base, std::uint64_t nbytes, Stream stream) = 0;
};

// The device's own allocation. `device` must outlive the source.
std::unique_ptr<SegmentSource> make_device_source(Device& device);

// Host memory whose pages are there before the first use: a transfer into fresh pages runs at a tenth of the speed.
// `device` must be host-accessible and outlive the source.
std::unique_ptr<SegmentSource> make_prefaulted_source(Device& device);

}  // namespace onesided
