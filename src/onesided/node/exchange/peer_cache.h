// A cache of connections to peers. Connecting takes milliseconds, and objects are often fetched from the same peer
// again, but a process that has fetched from a thousand peers must not stay connected to all of them. The least
// recently used connection is closed first; one with a running fetch is never closed.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/node/exchange/engine_port.h"

namespace onesided {

// Connections of one engine, by remote id. Internally synchronized; connects without holding its lock. The engine and
// this object must outlive every Pin.
class PeerCache {
 public:
  // Keeps the connection to one peer while it exists. A movable value; may be destroyed by any thread.
  class Pin {
   public:
    Pin() = default;
    Pin(PeerCache* cache, std::string remote) : cache_(cache), remote_(std::move(remote)) {}
    Pin(Pin&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)), remote_(std::move(other.remote_)) {}
    Pin& operator=(Pin&& other) noexcept;
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() { release(); }
    void release();
    bool valid() const { return cache_ != nullptr; }

   private:
    PeerCache* cache_ = nullptr;
    std::string remote_;
  };
  struct Counts {
    std::uint64_t peers = 0;        // currently connected
    std::uint64_t connects = 0;     // in total
    std::uint64_t reuses = 0;       // in total
    std::uint64_t evictions = 0;    // in total
    std::uint64_t disconnects = 0;  // in total, including evictions
  };

  // max_peers 0: a connection ends with its last user.
  PeerCache(EnginePort& engine, std::size_t max_peers) : engine_(engine), max_peers_(max_peers) {}
  PeerCache(const PeerCache&) = delete;
  PeerCache& operator=(const PeerCache&) = delete;

  // A connection to the peer. If the engine does not see new regions by itself and the connection is older than
  // `version`, waits for the fetches that use it and reconnects. Threads that request the same peer share one
  // connect(). Errors of Engine::connect; TIMEOUT also while other fetches use an old connection.
  Result<Pin> pin(const std::string& remote, std::uint64_t version, Deadline deadline);
  // Reports a broken connection: the next pin() reconnects when the fetches that use it have ended.
  void mark_broken(const std::string& remote);

  Counts counts() const;

 private:
  enum class State : std::uint8_t { kConnecting, kConnected, kLeaving };
  struct Peer {
    State state = State::kConnecting;
    std::uint64_t version = 0;
    std::uint64_t users = 0;
    bool broken = false;
    std::list<std::string>::iterator recency;
  };

  void unpin(const std::string& remote);
  Result<Pin> connect(const std::string& remote, std::uint64_t version, Deadline deadline, MutexLock& lock)
      ONESIDED_REQUIRES(mutex_);
  void disconnect(const std::string& remote, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  void evict_surplus(MutexLock& lock) ONESIDED_REQUIRES(mutex_);

  EnginePort& engine_;
  const std::size_t max_peers_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::unordered_map<std::string, Peer> peers_ ONESIDED_GUARDED_BY(mutex_);
  std::list<std::string> recency_ ONESIDED_GUARDED_BY(mutex_);  // least recently used first
  Counts counts_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
