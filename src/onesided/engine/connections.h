// The engine's connections in both directions. There is at most one connection to each peer, also when several threads
// connect to it at the same time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/engine/inbound_peers.h"
#include "onesided/engine/notify_queue.h"
#include "onesided/engine/peer.h"
#include "onesided/engine/session.h"

namespace onesided {

// Keeps a peer from being retired while this object exists. Movable.
class PeerUse {
 public:
  explicit PeerUse(Peer& peer) : peer_(&peer) { peer.uses().enter(); }
  PeerUse(PeerUse&& other) noexcept : peer_(std::exchange(other.peer_, nullptr)) {}
  PeerUse& operator=(PeerUse&&) = delete;
  ~PeerUse() {
    if (peer_) peer_->uses().leave();
  }
  Peer* operator->() const { return peer_; }
  Peer& operator*() const { return *peer_; }
  // The use is passed on: the receiver ends it (Peer::transfer_ended).
  Peer& hand_over() { return *std::exchange(peer_, nullptr); }

 private:
  Peer* peer_;
};

// Internally synchronized. Public functions must not be called from the session's thread.
class Connections : private SessionEvents {
 public:
  Connections(Registry& registry, NotifyQueue& notifies, std::vector<Transport*> transports);
  ~Connections() override;

  // Opens the listener. Must be called once, before any other function. `self_link` carries the transfers of this
  // engine with itself as the peer.
  Result<void> start(SessionOptions options, std::unique_ptr<CopyLink> self_link);
  const std::string& engine_id() const { return engine_id_; }
  const InstanceId& instance() const { return sessions_->hello().instance; }

  // ALREADY_CONNECTED: the peer is connected already, perhaps under another name; then both names are valid. If several
  // threads connect to one peer at the same time, one connects; the others wait for it and get ALREADY_CONNECTED. Other
  // errors as Sessions::connect().
  Result<void> connect(std::string_view remote_id, Deadline deadline);
  // Blocks until no byte of a transfer with this peer can move. Error: NOT_CONNECTED.
  Result<void> disconnect(std::string_view remote_id);
  // The connected peer. NOT_CONNECTED: never connected, or disconnected. PEER_LOST: the connection was lost. With
  // auto_connect, connects first.
  Result<PeerUse> use(std::string_view remote_id, bool auto_connect, Deadline deadline);

  InboundPeers& inbound() { return inbound_; }
  std::vector<std::pair<std::string, Peer::Stats>> stats();
  // Disconnects all peers and stops listening. Idempotent.
  void close();

 private:
  Result<void> on_accepted(const std::shared_ptr<Session>& session) override;
  void on_connected(const std::shared_ptr<Session>& session) override;
  void on_message(const std::shared_ptr<Session>& session, ControlMessage message, std::vector<Fd> fds) override;
  void on_drained(const std::shared_ptr<Session>& session) override;
  void on_lost(const std::shared_ptr<Session>& session, const Error& reason) override;
  void on_data_stream(const std::shared_ptr<Session>& session, std::string_view transport, Fd stream) override;

  std::shared_ptr<Peer> by_session(const Session& session);
  using Peers = std::map<std::string, std::shared_ptr<Peer>, std::less<>>;
  Peers::iterator find(std::string_view remote_id) ONESIDED_REQUIRES(mutex_);
  std::shared_ptr<Peer> take(Peers::iterator at) ONESIDED_REQUIRES(mutex_);
  void learn_alias(const std::string& remote_id);
  Result<std::shared_ptr<Peer>> dial(std::string_view remote_id, Deadline deadline);
  void retire(const std::shared_ptr<Peer>& peer, const Error& why);
  void sweep();

  const std::vector<Transport*> transports_;
  Registry& registry_;
  NotifyQueue& notifies_;
  InboundPeers inbound_;
  std::unique_ptr<Sessions> sessions_;
  std::string engine_id_;

  Mutex mutex_;
  CondVar dialed_;
  bool closed_ ONESIDED_GUARDED_BY(mutex_) = false;
  Peers peers_ ONESIDED_GUARDED_BY(mutex_);  // by the id that was connected first
  std::map<std::string, std::string, std::less<>> aliases_ ONESIDED_GUARDED_BY(mutex_);  // other ids of one of them
  std::set<std::string, std::less<>> dialing_ ONESIDED_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::shared_ptr<Peer>> by_session_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
