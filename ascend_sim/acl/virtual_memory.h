// Addresses and memory apart: a program reserves a range, makes physical pieces, and maps them side by side, so
// that one tensor can grow (torch_npu's expandable segments).
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "ascend_sim/acl/abi.h"
#include "ascend_sim/acl/handles.h"
#include "ascend_sim/acl/memory.h"
#include "onesided/base/mutex.h"

namespace onesided::sim {

// A physical piece that may be mapped anywhere, several times, in several processes.
struct PhysicalMemory {
  std::shared_ptr<Backing> backing;
  int device = -1;  // logical; -1 on the host
  std::uint64_t page_bytes = 0;
  std::uint64_t export_id = 0;  // on the machine's ledger; 0: not exported
};

// Reserved ranges and physical pieces of the process. Internally synchronized.
class VirtualMemory {
 public:
  HandleTable<PhysicalMemory, 0x54> pieces;

  AclError reserve(void** base, std::uint64_t nbytes, std::uint64_t alignment, void* wanted);
  AclError release(void* base);
  AclError map(void* base, std::uint64_t nbytes, std::uint64_t offset, const PhysicalMemory& piece);
  AclError unmap(void* base);

 private:
  struct Range {
    std::uint64_t nbytes;
  };
  bool reserved_locked(std::uint64_t base, std::uint64_t nbytes) const ONESIDED_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::uint64_t, Range> ranges_ ONESIDED_GUARDED_BY(mutex_);
};

VirtualMemory& virtual_memory();

}  // namespace onesided::sim
