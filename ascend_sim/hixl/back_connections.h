// An answer to a peer needs a connection towards it, which the program on this side never asked for. It is made
// when needed, used again while questions keep coming, and given up soon after; a connection of the program's own to
// the same peer is the same one and is left alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "onesided/base/clock.h"
#include "onesided/base/mutex.h"
#include "onesided/engine/engine.h"

namespace onesided::hixl_abi {

// All connecting and disconnecting of one engine goes through here. Internally synchronized; calls for one remote wait
// for each other, others pass. `engine` outlives it.
class BackConnections {
 public:
  explicit BackConnections(Engine& engine) : engine_(engine) {}

  // For the program. True: connected now; false: the program was connected already (and the peer lives).
  Result<bool> open(const std::string& remote, Deadline deadline);
  // Ends all transfers to the remote, whoever started them. NOT_CONNECTED.
  Result<void> close(const std::string& remote);

  // For answers: connects unless connected. Every success needs one release().
  Result<void> acquire(const std::string& remote, Deadline deadline);
  void release(const std::string& remote);
  // Disconnects what no answer has used for `idle_ms` and the program has not opened. True: others remain to be looked
  // at later.
  bool expire(std::int64_t idle_ms);

 private:
  struct Remote {
    bool program = false;
    std::uint32_t answers = 0;  // acquired
    bool busy = false;          // a thread is connecting or disconnecting
    Clock::time_point last_used;
  };
  // Blocks until no other thread works on the remote, then reserves it for this thread.
  Remote& enter(MutexLock& lock, const std::string& name) ONESIDED_REQUIRES(mutex_);
  void leave(const std::string& name) ONESIDED_REQUIRES(mutex_);

  Engine& engine_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Remote> remotes_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided::hixl_abi
