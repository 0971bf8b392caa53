// Memory that ranks elsewhere read through the engine is registered while they do. Operations of one process may use
// the same memory at once; the engine lists a range once.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "ascend_sim/hccl/switchboard.h"
#include "onesided/base/mutex.h"

namespace onesided::sim::hccl {

// Registered ranges of one engine. Internally synchronized.
class Registrations {
 public:
  // Of the engine behind this switchboard, which lives for ever.
  static Registrations& of(Switchboard& board);

  // Keeps [address, address + nbytes) registered until the returned value goes. A range inside a registered one shares
  // it; one that overlaps another is waited for. TIMEOUT, and the errors of Engine::register_mem.
  Result<std::shared_ptr<void>> keep(const void* address, std::uint64_t nbytes, Deadline deadline);

 private:
  struct Range {
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
    MemHandle handle;
    std::uint64_t users = 0;
  };
  explicit Registrations(Switchboard& board) : board_(board) {}
  void release(std::list<Range>::iterator range);

  Switchboard& board_;
  Mutex mutex_;
  CondVar released_;
  std::list<Range> ranges_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided::sim::hccl
