// Sharing of device memory between processes: keys (IPC) and shareable handles (virtual memory). The exports are
// recorded in the machine's ledger; the memory itself is the owner's memfd, opened through /proc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ascend_sim/acl/abi.h"
#include "ascend_sim/acl/ledger.h"
#include "ascend_sim/acl/virtual_memory.h"
#include "onesided/base/mutex.h"

namespace onesided::sim {

// "onesided-sim-<16 hex digits>": an IPC key of the simulator.
std::string key_of(std::uint64_t id);
// 0 for text that is not a key.
std::uint64_t id_of(const char* key);

// Exports and imports of this process. Internally synchronized.
class Sharing {
 public:
  // Start and length must be multiples of 2 MiB, as the driver requires; the key is written to `key` (capacity bytes).
  AclError export_range(void* address, std::uint64_t nbytes, char* key, std::size_t capacity, bool any_process);
  AclError export_piece(void* handle, bool any_process, std::uint64_t* id);
  AclError allow(const char* function, std::uint64_t id, const std::int32_t* pids, std::size_t count);
  AclError import_range(const char* key, void** address);
  AclError import_piece(std::uint64_t id, std::int32_t device, void** handle);
  // Ends an export of this process, or an import into it.
  AclError close(const char* key);
  // The allocation at `base` is being freed: its keys end with it.
  void forget_exports_of(std::uint64_t base);

 private:
  Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> exports_ ONESIDED_GUARDED_BY(mutex_);  // id -> base of the allocation
  std::map<std::uint64_t, void*> imports_ ONESIDED_GUARDED_BY(mutex_);          // id -> address
};

Sharing& sharing();

}  // namespace onesided::sim
