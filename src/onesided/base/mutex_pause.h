// A function that was passed a lock, and calls out, has to give it back for as long as that takes.
#pragma once

#include "onesided/base/mutex.h"

namespace onesided {

// Gives a lock back for a scope. The analysis cannot follow a lock that is passed on, and takes the mutex for held:
// nothing that it guards may be touched in the scope.
class MutexPause {
 public:
  explicit MutexPause(MutexLock& lock) : lock_(lock.native()) { lock_.unlock(); }
  ~MutexPause() { lock_.lock(); }
  MutexPause(const MutexPause&) = delete;
  MutexPause& operator=(const MutexPause&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
};

}  // namespace onesided
