// The interface of a device with memory: raw memory, order (streams and events), copies, and export of memory to
// another process. Pools and engines use it without a distinction between host memory and Ascend NPUs (real or
// simulated).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "onesided/base/fd.h"
#include "onesided/base/result.h"

namespace onesided {

// The kind of memory of a range, as in HIXL's register_mem.
enum class MemType : std::uint8_t { kHost = 0, kDevice = 1 };

// An in-order queue of a device, as its runtime identifies it (aclrtStream, or any tag on the host device). Null is the
// default stream. A value; the device owns the queue.
struct Stream {
  void* handle = nullptr;
  friend auto operator<=>(const Stream&, const Stream&) = default;
};

// A point in a stream's work. Owned by the caller from record_event() until release_event().
struct Event {
  void* handle = nullptr;
};

struct MemoryInfo {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

// What another process needs to map the memory at an address: the file, and the position of the range in it.
struct ExportedMemory {
  Fd file;  // a memfd; never shrunk while the allocation exists
  std::uint64_t file_offset = 0;
  std::uint64_t base = 0;    // start of the allocation in this process
  std::uint64_t nbytes = 0;  // its whole length
};

// The runtime's information about a pointer.
struct PointerInfo {
  MemType type = MemType::kHost;
  int device_id = -1;  // of device memory; -1 on the host
};

// One device. Thread-safe. Must outlive every pool, region and engine that uses it. Every call may be made on a thread
// whose "current device" is another one, and does not change that setting.
class Device {
 public:
  virtual ~Device() = default;

  // "host", "npu:0".
  virtual std::string_view name() const = 0;
  virtual MemType mem_type() const = 0;
  // Smallest unit of memory and lowest alignment of a pool, in bytes (4 KiB).
  virtual std::uint64_t page_bytes() const = 0;
  // Start and length of a range registered for remote access must be multiples of this, in bytes (1 on the host, 2 MiB
  // on NPUs).
  virtual std::uint64_t registration_alignment() const = 0;
  // True if the host can read and write the memory at the same address (host memory, simulated NPUs).
  virtual bool host_accessible() const = 0;

  // Allocates a range of at least nbytes (> 0). `alignment` (a power of two) is a request; the caller checks the
  // result. RESOURCE_EXHAUSTED: exhausted, no state has changed.
  virtual Result<void*> allocate(std::uint64_t nbytes, std::uint64_t alignment) = 0;
  // Frees a range exactly as returned by allocate(), once. Work that uses it must have ended.
  virtual Result<void> free(void* base, std::uint64_t nbytes) = 0;
  virtual Result<MemoryInfo> memory_info() = 0;

  // Records a mark after all work queued on the stream so far.
  virtual Result<Event> record_event(Stream stream) = 0;
  // True once the work before the mark is done. Never blocks.
  virtual Result<bool> event_done(Event event) = 0;
  // Blocks until the work before the mark is done.
  virtual Result<void> wait_event(Event event) = 0;
  virtual void release_event(Event event) = 0;
  // Blocks until all work queued on all streams is done.
  virtual Result<void> synchronize() = 0;

  // Blocking copy between this device's memory and the host, or within either. No alignment is required.
  virtual Result<void> copy_to_host(void* host, const void* device, std::uint64_t nbytes) = 0;
  virtual Result<void> copy_from_host(void* device, const void* host, std::uint64_t nbytes) = 0;

  // Returns what another process needs to map the allocation that contains `address`. UNSUPPORTED: the memory has no
  // file.
  virtual Result<ExportedMemory> export_memory(const void* address) = 0;
  // The kind of memory according to the device's runtime. NOT_FOUND: unknown to it (plain host memory).
  virtual Result<PointerInfo> inspect(const void* address) = 0;
};

}  // namespace onesided
