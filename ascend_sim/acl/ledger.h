// The ledger of the simulated machine's memory. All processes of a user share each device's capacity, and the memory of
// a killed process becomes free. The ledger is a memfd that each process maps. Every process that has it open binds an
// abstract socket "onesided-sim/<uid>/<machine>/<pid>/<fd>", by which others find it; the kernel removes the last of
// these when the last process of the machine ends, however it ends.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "ascend_sim/acl/config.h"
#include "onesided/base/fd.h"
#include "onesided/base/result.h"

namespace onesided::sim {

// A process, safe against reuse of its id. A value.
struct ProcessId {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot, from /proc/<pid>/stat

  static ProcessId self();
  bool alive() const;
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

// Memory that one process exports by an IPC key or a shareable handle.
struct ExportRecord {
  static constexpr std::size_t kMaxPids = 32;
  std::uint64_t id = 0;  // 0: the slot is free
  ProcessId owner;
  std::int32_t fd = -1;  // in the owner
  std::uint64_t inode = 0;
  std::uint64_t file_offset = 0;
  std::uint64_t nbytes = 0;
  std::int32_t physical_device = 0;
  bool any_process = false;
  std::uint32_t pid_count = 0;
  std::array<std::int32_t, kMaxPids> pids{};
};

// Internally synchronized, across threads and processes. Never destroyed.
class Ledger {
 public:
  // This user's machine, joined at the first call, and created if there is none. Fails with a message if /proc is not
  // accessible.
  static Result<Ledger*> machine();

  // Charges nbytes of a physical device to this process. RESOURCE_EXHAUSTED if the sum over all running processes would
  // exceed `capacity`; then nothing is charged.
  Result<void> charge(int device, std::uint64_t nbytes, std::uint64_t capacity);
  void refund(int device, std::uint64_t nbytes);
  // Sum over all running processes.
  std::uint64_t used(int device);

  // Publishes a record under a new id, which is returned.
  Result<std::uint64_t> publish(ExportRecord record);
  void withdraw(std::uint64_t id);
  // NOT_FOUND if no running process exports it.
  Result<ExportRecord> look_up(std::uint64_t id);
  // Lets more processes import. NOT_FOUND, or RESOURCE_EXHAUSTED beyond kMaxPids.
  Result<void> allow(std::uint64_t id, const std::int32_t* pids, std::size_t count);

 private:
  struct Books;
  class BooksLock;
  Ledger(Books* books, Fd file, Fd name);
  static Result<Ledger*> join();

  void sweep();  // removes ended processes; called with the ledger locked
  std::uint64_t sum(int device) const;
  Result<int> own_slot();
  ExportRecord* find(std::uint64_t id);

  Books* books_;
  const ProcessId self_ = ProcessId::self();
  Fd file_;
  Fd name_;
  int slot_ = -1;
};

}  // namespace onesided::sim
