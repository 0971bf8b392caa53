#include "ascend_sim/hccl/registrations.h"

#include <algorithm>
#include <map>

#include "onesided/base/align.h"
#include "onesided/base/log.h"

namespace onesided::sim::hccl {

Registrations& Registrations::of(Switchboard& board) {
  static Mutex mutex;
  static auto* all = new std::map<Switchboard*, Registrations*>;
  MutexLock lock(mutex);
  Registrations*& known = (*all)[&board];
  if (!known) known = new Registrations(board);
  return *known;
}

Result<std::shared_ptr<void>> Registrations::keep(const void* address, std::uint64_t nbytes, Deadline deadline) {
  const auto at = reinterpret_cast<std::uint64_t>(address);
  MutexLock lock(mutex_);
  while (true) {
    const auto overlap = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& range) {
      return at < range.address + range.nbytes && range.address < at + nbytes;
    });
    if (overlap == ranges_.end()) break;
    if (range_within(at, nbytes, overlap->address, overlap->nbytes)) {
      ++overlap->users;
      return std::shared_ptr<void>(&*overlap, [this, overlap](void*) { release(overlap); });
    }
    if (!released_.wait(lock, deadline)) {
      return Error(Status::kTimeout, "another collective uses a part of the same memory and does not end");
    }
  }
  // The engine never calls back here; registering under the lock keeps two operations from listing one range twice.
  ONESIDED_TRY_ASSIGN(handle, board_.engine().register_mem(at, nbytes, MemType::kHost));
  const auto range = ranges_.insert(ranges_.end(), Range{at, nbytes, handle, 1});
  return std::shared_ptr<void>(&*range, [this, range](void*) { release(range); });
}

void Registrations::release(std::list<Range>::iterator range) {
  MutexLock lock(mutex_);
  if (--range->users > 0) return;
  // BUSY: a reader is suspended in the middle of a read. The engine refuses it from now on.
  if (const auto dropped = board_.engine().deregister_mem(range->handle); !dropped.ok())
    log_line(LogLevel::kWarn, "hccl: " + dropped.error().text());
  ranges_.erase(range);
  released_.notify_all();
}

}  // namespace onesided::sim::hccl
