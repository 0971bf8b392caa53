#include "onesided/node/exchange/peer_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "onesided/base/mutex_pause.h"

namespace onesided {

PeerCache::Pin& PeerCache::Pin::operator=(Pin&& other) noexcept {
  if (this != &other) {
    release();
    cache_ = std::exchange(other.cache_, nullptr);
    remote_ = std::move(other.remote_);
  }
  return *this;
}

void PeerCache::Pin::release() {
  if (PeerCache* cache = std::exchange(cache_, nullptr)) cache->unpin(remote_);
}

Result<PeerCache::Pin> PeerCache::pin(const std::string& remote, std::uint64_t version, Deadline deadline) {
  const bool sees_new_regions = engine_.sees_new_regions();
  MutexLock lock(mutex_);
  while (true) {
    const auto found = peers_.find(remote);
    if (found == peers_.end()) return connect(remote, version, deadline, lock);
    Peer& peer = found->second;
    const bool usable = !peer.broken && (version <= peer.version || sees_new_regions);
    if (peer.state == State::kConnected && usable) {
      ++peer.users;
      ++counts_.reuses;
      recency_.splice(recency_.end(), recency_, peer.recency);
      return Pin(this, remote);
    }
    if (peer.state == State::kConnected && peer.users == 0) {
      disconnect(remote, lock);
      continue;
    }
    // Other threads are connecting, disconnecting, or still using the connection that has to be renewed.
    if (!changed_.wait(lock, deadline))
      return Error{Status::kTimeout,
                   fmt::format("connecting to {}: other fetches still use or open its connection", remote)};
  }
}

Result<PeerCache::Pin> PeerCache::connect(const std::string& remote, std::uint64_t version, Deadline deadline,
                                          MutexLock& lock) {
  recency_.push_back(remote);
  Peer& peer = peers_[remote];  // references into the map stay valid; only this thread removes a connecting entry
  peer = {.state = State::kConnecting, .version = version, .users = 1, .recency = std::prev(recency_.end())};
  auto connected = [&] {
    const MutexPause pause(lock);
    return engine_.connect(remote, deadline);
  }();
  changed_.notify_all();
  if (!connected) {
    recency_.erase(peer.recency);
    peers_.erase(remote);
    return connected.error();
  }
  peer.state = State::kConnected;
  ++counts_.connects;
  ++counts_.peers;
  evict_surplus(lock);
  return Pin(this, remote);
}

void PeerCache::disconnect(const std::string& remote, MutexLock& lock) {
  Peer& peer = peers_.at(remote);
  peer.state = State::kLeaving;  // from here on only this thread uses the entry
  {
    const MutexPause pause(lock);
    engine_.disconnect(remote);
  }
  recency_.erase(peer.recency);
  peers_.erase(remote);
  --counts_.peers;
  ++counts_.disconnects;
  changed_.notify_all();
}

void PeerCache::evict_surplus(MutexLock& lock) {
  while (counts_.peers > max_peers_) {
    const auto idle = std::ranges::find_if(recency_, [this](const std::string& remote) ONESIDED_NO_TSA {
      const Peer& peer = peers_.at(remote);
      return peer.state == State::kConnected && peer.users == 0;
    });
    if (idle == recency_.end()) return;  // all in use: the surplus is closed when they are done
    ++counts_.evictions;
    disconnect(std::string(*idle), lock);
  }
}

void PeerCache::unpin(const std::string& remote) {
  MutexLock lock(mutex_);
  const auto found = peers_.find(remote);
  if (--found->second.users > 0) return;
  changed_.notify_all();
  evict_surplus(lock);
}

void PeerCache::mark_broken(const std::string& remote) {
  MutexLock lock(mutex_);
  const auto found = peers_.find(remote);
  if (found != peers_.end()) found->second.broken = true;
}

PeerCache::Counts PeerCache::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

}  // namespace onesided
