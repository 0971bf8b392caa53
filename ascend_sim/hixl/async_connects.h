// ConnectAsync and DisconnectAsync must keep their order for one remote, run at once for different remotes, and
// say so when too many wait. That is a queue per remote over a few threads, whatever connecting means.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"

namespace onesided::hixl_abi {

// In the order of hixl::AsyncConnectStatus.
enum class ConnectState {
  kNotConnected,
  kConnectPending,
  kConnecting,
  kConnected,
  kConnectFailed,
  kDisconnectPending,
  kDisconnecting
};

// Internally synchronized.
class AsyncConnects {
 public:
  enum class Job { kConnect, kDisconnect };
  // Does the job; runs on the queue's threads, never twice at once for one remote. `timeout_ms` counts from its start.
  using Run = std::function<Result<void>(Job, const std::string& remote, std::int32_t timeout_ms)>;

  // `capacity`: jobs that may wait, those running not counted.
  AsyncConnects(std::uint32_t threads, std::uint32_t capacity, Run run);
  // As stop().
  ~AsyncConnects();

  // RESOURCE_EXHAUSTED: `capacity` jobs wait already. CLOSED: stopped.
  Result<void> submit(Job job, const std::string& remote, std::int32_t timeout_ms);
  // What runs for this remote; else what waits first; else how its last job ended; else kNotConnected.
  ConnectState state(const std::string& remote) const;
  std::map<std::string, ConnectState> states() const;
  // Drops what waits (a dropped connect has failed), lets what runs end, joins the threads. Idempotent.
  void stop();

 private:
  struct Waiting {
    Job job;
    std::int32_t timeout_ms;
  };
  struct Remote {
    std::deque<Waiting> waiting;
    bool running = false;
    Job running_job = Job::kConnect;
    ConnectState last = ConnectState::kNotConnected;
  };

  void work();
  static ConnectState state_of(const Remote& remote);

  const std::uint32_t capacity_;
  const Run run_;
  mutable Mutex mutex_;
  CondVar wake_;
  std::map<std::string, Remote> remotes_ ONESIDED_GUARDED_BY(mutex_);
  std::deque<std::string> ready_ ONESIDED_GUARDED_BY(mutex_);  // remotes with queued work and no thread, oldest first
  std::uint32_t waiting_ ONESIDED_GUARDED_BY(mutex_) = 0;
  bool stopped_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // set by the constructor, joined by the first stop()
};

}  // namespace onesided::hixl_abi
