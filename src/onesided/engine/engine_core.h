// What an engine owns, declared so that destruction happens in the required order. Shared by engine.cc and
// engine_transfer.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "onesided/base/fork_guard.h"
#include "onesided/base/mutex.h"
#include "onesided/engine/connections.h"
#include "onesided/engine/engine.h"
#include "onesided/engine/workers.h"

namespace onesided {

// Limits the number of unfinished asynchronous transfers. Internally synchronized.
class Outstanding {
 public:
  // Blocks while the limit is reached. False if the deadline passed first.
  bool take(std::uint64_t limit, Deadline deadline) {
    MutexLock lock(mutex_);
    while (count_ >= limit)
      if (!freed_.wait(lock, deadline) && count_ >= limit) return false;
    ++count_;
    return true;
  }
  void give_back() {
    {
      MutexLock lock(mutex_);
      --count_;
    }
    freed_.notify_one();
  }
  std::size_t count() {
    MutexLock lock(mutex_);
    return count_;
  }

 private:
  Mutex mutex_;
  CondVar freed_;
  std::uint64_t count_ ONESIDED_GUARDED_BY(mutex_) = 0;
};

struct Engine::Core {
  ForkGuard process;
  std::atomic<bool> closed{false};
  Mutex close_mutex;
  EngineOptions options;
  NotifyQueue notifies;
  Outstanding outstanding;
  std::unique_ptr<Registry> registry;
  std::vector<std::unique_ptr<Transport>> transports;
  std::unique_ptr<Workers> workers;
  std::unique_ptr<Connections> connections;
  ConnectQueue connects;
};

}  // namespace onesided
