// Releases a lock temporarily, in a function that received the lock and makes an outside call.
#pragma once

#include "onesided/base/mutex.h"

namespace onesided {

// Releases a lock for a scope. The analysis cannot follow a lock that is passed on and treats the mutex as held:
// members guarded by it must not be accessed in the scope.
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
