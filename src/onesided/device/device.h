// The pool and the engine need the same few things of a place where memory lives: raw memory, order (streams and
// events), copies, and a way to let another process map it. Host memory and Ascend NPUs (real or simulated) are
// siblings behind this interface; nobody above knows which it talks to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "onesided/base/fd.h"
#include "onesided/base/result.h"

namespace onesided {

// Where a byte range lives, as HIXL's register_mem takes it.
enum class MemType : std::uint8_t { kHost = 0, kDevice = 1 };

// A device's in-order queue, as its own runtime names it (aclrtStream, or any tag on the host device). Null is the
// default stream. A value; the device owns what it names.
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

// What another process needs to map the memory that holds an address: the file and where the range lies in it.
struct ExportedMemory {
  Fd file;  // a memfd; never shrunk while the allocation lives
  std::uint64_t file_offset = 0;
  std::uint64_t base = 0;    // start of the allocation in this process
  std::uint64_t nbytes = 0;  // its whole length
};

// What a runtime says of a pointer.
struct PointerInfo {
  MemType type = MemType::kHost;
  int device_id = -1;  // of device memory; -1 on the host
};

// One device. Thread-safe. Must outlive every pool, region and engine that uses it. Every call may be made from a
// thread whose "current device" is another one, and leaves that setting as it was.
class Device {
 public:
  virtual ~Device() = default;

  // "host", "npu:0".
  virtual std::string_view name() const = 0;
  virtual MemType mem_type() const = 0;
  // Smallest unit of memory and lowest sensible alignment of a pool, bytes (4 KiB).
  virtual std::uint64_t page_bytes() const = 0;
  // Start and length of a range registered for remote access must be multiples of this (1 on the host, 2 MiB on NPUs).
  virtual std::uint64_t registration_alignment() const = 0;
  // The host may read and write the memory through the same address (host memory, simulated NPUs).
  virtual bool host_accessible() const = 0;

  // A new range of at least nbytes (> 0), aligned as the device pleases: ask with `alignment` (a power of two), check
  // the answer. Exhausted: RESOURCE_EXHAUSTED, no state change.
  virtual Result<void*> allocate(std::uint64_t nbytes, std::uint64_t alignment) = 0;
  // Gives back exactly what allocate() returned, once. Work that uses it must have ended.
  virtual Result<void> free(void* base, std::uint64_t nbytes) = 0;
  virtual Result<MemoryInfo> memory_info() = 0;

  // A mark after everything queued on the stream so far.
  virtual Result<Event> record_event(Stream stream) = 0;
  // True once the work before the mark is done. Never blocks.
  virtual Result<bool> event_done(Event event) = 0;
  // Blocks until the work before the mark is done.
  virtual Result<void> wait_event(Event event) = 0;
  virtual void release_event(Event event) = 0;
  // Blocks until all work queued on all streams is done.
  virtual Result<void> synchronize() = 0;

  // Blocking copy between this device's memory and the host, or within either. No alignment asked.
  virtual Result<void> copy_to_host(void* host, const void* device, std::uint64_t nbytes) = 0;
  virtual Result<void> copy_from_host(void* device, const void* host, std::uint64_t nbytes) = 0;

  // How another process can map the allocation that holds `address`. UNSUPPORTED where the memory has no file.
  virtual Result<ExportedMemory> export_memory(const void* address) = 0;
  // What kind of memory this is to the device's runtime. NOT_FOUND: unknown to it (plain host memory).
  virtual Result<PointerInfo> inspect(const void* address) = 0;
};

}  // namespace onesided
