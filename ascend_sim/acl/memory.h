// The table of all addresses that the runtime has given to the program: kind of memory, device, length, file. Copies
// check their ranges against it, exports find their file in it, and an unknown pointer is an error with a message.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "onesided/base/fd.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"

namespace onesided::sim {

// A memfd and its charge. Shared by its allocation, its mappings and the work queued on them; the memory and the
// device's bytes are freed with the last reference. Never shrunk while it exists.
class Backing {
 public:
  // physical_device -1: host memory or another process's memory, charged to no device.
  Backing(Fd file, std::uint64_t nbytes, int physical_device);
  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  int fd() const { return file_.get(); }
  std::uint64_t nbytes() const { return nbytes_; }
  int physical_device() const { return physical_device_; }
  std::uint64_t inode() const { return inode_; }

 private:
  Fd file_;
  std::uint64_t nbytes_;
  int physical_device_;
  std::uint64_t inode_ = 0;
};

// A memfd of nbytes, raising this process's soft limit of open files when that is what stands in the way.
Result<Fd> make_memory_file(std::uint64_t nbytes);

enum class MemoryKind {
  kDevice,          // aclrtMalloc
  kHost,            // aclrtMallocHost
  kMapped,          // aclrtMapMem: a piece of a reserved range
  kImported,        // aclrtIpcMemImportByKey
  kHostRegistered,  // the program's own memory, known through aclrtHostRegister
};

// A mapped range, held by shared_ptr: work that touches it keeps it mapped after it was freed. Not changed once it is
// in the table.
struct Mapping {
  MemoryKind kind = MemoryKind::kDevice;
  std::uint64_t base = 0;
  std::uint64_t nbytes = 0;
  int device = -1;                   // logical; -1 on the host
  std::shared_ptr<Backing> backing;  // null for kHostRegistered
  std::uint64_t file_offset = 0;
  std::uint64_t page_bytes = 0;
  // What to give back to the system with the last reference; nothing where a reservation owns the addresses.
  std::uint64_t owned_base = 0;
  std::uint64_t owned_bytes = 0;

  bool on_device() const { return device >= 0; }
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
};
using MappingPtr = std::shared_ptr<const Mapping>;

// All mappings of the process by address. Internally synchronized.
class MemoryTable {
 public:
  void add(MappingPtr mapping);
  // The mapping that holds `address`, or null.
  MappingPtr find(const void* address) const;
  // Takes out the mapping that starts exactly at `base` and is of `kind`; null when there is none.
  MappingPtr remove(const void* base, MemoryKind kind);
  // Mappings that cover [address, address + nbytes) without a hole, all on the same device; empty when they do not.
  std::vector<MappingPtr> cover(const void* address, std::uint64_t nbytes) const;
  // Any mapping inside [base, base + nbytes)?
  bool occupied(std::uint64_t base, std::uint64_t nbytes) const;

 private:
  MappingPtr find_locked(std::uint64_t address) const ONESIDED_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::uint64_t, MappingPtr> by_base_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided::sim
