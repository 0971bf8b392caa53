#include "back_connections.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace onesided::hixl_abi {

namespace {

std::int64_t milliseconds_left(Deadline deadline) {
  const int left = deadline.poll_timeout_ms();
  return left < 0 ? 60'000 : std::max(left, 1);
}

}  // namespace

BackConnections::Remote& BackConnections::enter(MutexLock& lock, const std::string& name) {
  while (true) {
    Remote& remote = remotes_[name];
    if (!remote.busy) {
      remote.busy = true;
      return remote;
    }
    changed_.wait(lock);
  }
}

void BackConnections::leave(const std::string& name) {
  const auto found = remotes_.find(name);
  found->second.busy = false;
  if (!found->second.program && found->second.answers == 0 && found->second.last_used == Clock::time_point())
    remotes_.erase(found);
  changed_.notify_all();
}

Result<bool> BackConnections::open(const std::string& name, Deadline deadline) {
  MutexLock lock(mutex_);
  Remote& remote = enter(lock, name);
  const bool known = remote.program;
  lock.unlock();
  const auto connected = engine_.connect(name, milliseconds_left(deadline));
  lock.lock();
  // Success although the program had a connection: that one had died with its peer.
  const bool usable = connected.ok() || connected.status() == Status::kAlreadyConnected;
  remote.program = usable;
  leave(name);
  if (!usable) return connected.error();
  if (name == engine_.id()) return !known;  // an engine always reaches itself, and says so every time
  return connected.ok() || !known;
}

Result<void> BackConnections::close(const std::string& name) {
  MutexLock lock(mutex_);
  Remote& remote = enter(lock, name);
  const bool known = remote.program;
  remote.program = false;
  remote.last_used = {};
  lock.unlock();
  auto closed =
      known ? engine_.disconnect(name) : Result<void>(Error(Status::kNotConnected, "not connected to " + name));
  lock.lock();
  leave(name);
  // The peer may be gone already; then there is nothing left to end.
  if (known && closed.status() == Status::kNotConnected) return {};
  return closed;
}

Result<void> BackConnections::acquire(const std::string& name, Deadline deadline) {
  MutexLock lock(mutex_);
  Remote& remote = enter(lock, name);
  lock.unlock();
  auto connected = engine_.connect(name, milliseconds_left(deadline));
  if (connected.status() == Status::kAlreadyConnected) connected = {};
  lock.lock();
  if (connected.ok()) ++remote.answers;
  leave(name);
  return connected;
}

void BackConnections::release(const std::string& name) {
  MutexLock lock(mutex_);
  Remote& remote = remotes_[name];
  --remote.answers;
  remote.last_used = Clock::now();
}

bool BackConnections::expire(std::int64_t idle_ms) {
  std::vector<std::string> idle;
  bool rest = false;
  MutexLock lock(mutex_);
  const auto limit = Clock::now() - std::chrono::milliseconds(idle_ms);
  for (auto& [name, remote] : remotes_) {
    if (remote.last_used == Clock::time_point() || remote.busy) continue;
    if (remote.answers > 0 || remote.last_used > limit) {
      rest = true;
    } else if (remote.program) {
      remote.last_used = {};
    } else {
      remote.busy = true;
      idle.push_back(name);
    }
  }
  for (const std::string& name : idle) {
    lock.unlock();
    // An error means that the peer is gone: as good.
    (void)engine_.disconnect(name);
    lock.lock();
    remotes_[name].last_used = {};
    leave(name);
  }
  return rest;
}

}  // namespace onesided::hixl_abi
