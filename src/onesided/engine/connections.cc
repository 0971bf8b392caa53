#include "onesided/engine/connections.h"

#include <fmt/format.h>

#include <algorithm>

namespace onesided {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;  // clang 16 does not deduce aggregates

Error not_connected(std::string_view remote_id) {
  return {Status::kNotConnected, fmt::format("not connected to {}; call connect first", remote_id)};
}

}  // namespace

Connections::Connections(Registry& registry, NotifyQueue& notifies, std::vector<Transport*> transports)
    : transports_(std::move(transports)), registry_(registry), notifies_(notifies), inbound_(registry) {}

Connections::~Connections() { close(); }

Result<void> Connections::start(SessionOptions options, std::unique_ptr<CopyLink> self_link) {
  ONESIDED_TRY_ASSIGN(sessions, Sessions::create(std::move(options), *this));
  sessions_ = std::move(sessions);
  engine_id_ = sessions_->hello().engine_id;
  MutexLock lock(mutex_);
  peers_[engine_id_] = std::make_shared<Peer>(engine_id_, instance(), registry_.table(), std::move(self_link));
  return {};
}

Result<void> Connections::connect(std::string_view remote_id, Deadline deadline) {
  sweep();
  MutexLock lock(mutex_);
  while (true) {
    if (closed_) return Error(Status::kClosed, "the engine is closed");
    const auto known = find(remote_id);
    if (known != peers_.end() && !known->second->unusable_reason()) {
      // This engine is always connected to itself; a connect to itself changes nothing.
      if (known->second->is_self()) return {};
      return Error(Status::kAlreadyConnected, fmt::format("already connected to {}", remote_id));
    }
    if (!dialing_.contains(remote_id)) break;
    if (!dialed_.wait(lock, deadline) && dialing_.contains(remote_id))
      return Error(Status::kTimeout, fmt::format("another thread is still connecting to {}", remote_id));
  }
  const std::string id(remote_id);
  std::shared_ptr<Peer> old;
  if (const auto known = find(id); known != peers_.end()) old = take(known);
  dialing_.insert(id);
  lock.unlock();
  if (old) retire(old, *old->unusable_reason());
  auto peer = dial(id, deadline);
  if (peer.status() == Status::kAlreadyConnected) learn_alias(id);
  lock.lock();
  dialing_.erase(id);
  dialed_.notify_all();
  if (!peer.ok()) return peer.error();
  if (!closed_) {
    peers_[id] = std::move(peer).value();
    return {};
  }
  lock.unlock();
  const Error closed(Status::kClosed, "the engine was closed");
  retire(*peer, closed);
  return closed;
}

Connections::Peers::iterator Connections::find(std::string_view remote_id) {
  const auto at = peers_.find(remote_id);
  if (at != peers_.end()) return at;
  const auto alias = aliases_.find(remote_id);
  return alias == aliases_.end() ? at : peers_.find(alias->second);
}

std::shared_ptr<Peer> Connections::take(Peers::iterator at) {
  std::erase_if(aliases_, [&](const auto& alias) { return alias.second == at->first; });
  auto peer = std::move(at->second);
  peers_.erase(at);
  return peer;
}

// Finds the connected peer that the name refers to by its addresses. The engine that answers there is not asked,
// because it is not authenticated.
void Connections::learn_alias(const std::string& remote_id) {
  const auto endpoint = Endpoint::parse(remote_id);
  if (!endpoint) return;
  const auto addresses = resolve(*endpoint);
  if (!addresses) return;
  MutexLock lock(mutex_);
  for (const auto& [id, peer] : peers_)
    for (const auto& address : *addresses)
      if (!peer->unusable_reason() && peer->bound_address() == address.to_string()) aliases_[remote_id] = id;
}

Result<std::shared_ptr<Peer>> Connections::dial(std::string_view remote_id, Deadline deadline) {
  ONESIDED_TRY_ASSIGN(session, sessions_->connect(remote_id, deadline));
  const auto peer = by_session(*session);
  if (!peer)
    return Error(Status::kPeerLost, fmt::format("{} ended the session directly after it was connected", remote_id));
  auto linked = peer->open_links(transports_, deadline);
  if (linked.ok()) return peer;
  retire(peer, linked.error());
  return linked.error();
}

void Connections::retire(const std::shared_ptr<Peer>& peer, const Error& why) {
  peer->close(why);
  MutexLock lock(mutex_);
  by_session_.erase(peer->session_id());
}

void Connections::sweep() {
  // Lost peers, and their mappings, are freed at the latest when the next peer is dialed.
  std::vector<std::shared_ptr<Peer>> dead;
  {
    MutexLock lock(mutex_);
    for (auto at = peers_.begin(); at != peers_.end();) {
      const auto here = at++;
      if (here->second->unusable_reason() && here->second->uses().users() == 0) dead.push_back(take(here));
    }
  }
  for (const auto& peer : dead) retire(peer, *peer->unusable_reason());
}

Result<void> Connections::disconnect(std::string_view remote_id) {
  MutexLock lock(mutex_);
  const auto known = find(remote_id);
  if (known == peers_.end() || known->second->is_self()) return not_connected(remote_id);
  const auto peer = take(known);
  lock.unlock();
  retire(peer, Error(Status::kCancelled, fmt::format("this engine disconnected from {}", remote_id)));
  return {};
}

Result<PeerUse> Connections::use(std::string_view remote_id, bool auto_connect, Deadline deadline) {
  bool last_try = false;
  while (true) {
    std::optional<Error> gone;
    {
      MutexLock lock(mutex_);
      if (closed_) return Error(Status::kClosed, "the engine is closed");
      if (const auto known = find(remote_id); known != peers_.end()) {
        PeerUse use(*known->second);
        gone = use->unusable_reason();
        if (!gone) return use;
      }
    }
    if (!auto_connect) return gone ? *gone : not_connected(remote_id);
    auto connected = connect(remote_id, deadline);
    if (!connected.ok() && connected.status() != Status::kAlreadyConnected) return connected.error();
    if (connected.ok()) continue;
    MutexLock lock(mutex_);
    if (find(remote_id) != peers_.end()) continue;
    // Another thread is connecting to it under another name.
    if (dialing_.empty() && std::exchange(last_try, true)) return connected.error();
    if (dialing_.empty()) continue;
    if (!dialed_.wait(lock, deadline) && deadline.passed()) return connected.error();
  }
}

std::shared_ptr<Peer> Connections::by_session(const Session& session) {
  MutexLock lock(mutex_);
  const auto at = by_session_.find(session.id());
  return at == by_session_.end() ? nullptr : at->second;
}

Result<void> Connections::on_accepted(const std::shared_ptr<Session>& session) {
  for (Transport* transport : transports_) transport->peer_accepted(session->peer());
  return inbound_.on_accepted(session);
}

void Connections::on_connected(const std::shared_ptr<Session>& session) {
  auto peer = std::make_shared<Peer>(session);
  MutexLock lock(mutex_);
  by_session_[session->id()] = std::move(peer);
}

void Connections::on_message(const std::shared_ptr<Session>& session, ControlMessage message, std::vector<Fd> fds) {
  const auto peer = session->initiated() ? by_session(*session) : nullptr;
  // A message of the other direction is a protocol error; it ends the session.
  const auto misplaced = [&](const auto&) {
    session->close(fmt::format("{} does not belong on this side of a session", control_message_name(message)));
  };
  if (session->initiated()) {
    if (!peer) return;
    std::visit(Overloaded{[&](const TableOffer& offer) { peer->on_table_offer(offer, std::move(fds)); },
                          [&](const RegionUpdate& update) { peer->on_region_update(update, std::move(fds)); },
                          [&](const TableSynced& synced) { peer->on_table_synced(synced.tag); },
                          [&](const NotifyAck& ack) { peer->on_notify_ack(ack); }, misplaced},
               message);
    return;
  }
  std::visit(Overloaded{[&](const TableRequest& request) { inbound_.on_table_request(session, request); },
                        [&](Notify& notify) {
                          const auto sequence = notify.sequence;
                          const Status status = notifies_.push(std::move(notify.name), std::move(notify.message));
                          (void)session->send(NotifyAck{sequence, status}, {}, Deadline::after_ms(std::int64_t{0}));
                        },
                        misplaced},
             message);
}

void Connections::on_drained(const std::shared_ptr<Session>& session) {
  if (!session->initiated()) inbound_.on_drained(session);
}

void Connections::on_lost(const std::shared_ptr<Session>& session, const Error& reason) {
  if (!session->initiated()) {
    for (Transport* transport : transports_) transport->session_ended(*session);
    return inbound_.on_lost(session);
  }
  if (const auto peer = by_session(*session)) peer->on_lost(reason);
}

void Connections::on_data_stream(const std::shared_ptr<Session>& session, std::string_view transport, Fd stream) {
  for (Transport* served : transports_)
    if (served->name() == transport) return served->serve(std::move(stream), session);
}

std::vector<std::pair<std::string, Peer::Stats>> Connections::stats() {
  std::vector<std::pair<std::string, PeerUse>> uses;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, peer] : peers_) uses.emplace_back(id, PeerUse(*peer));
  }
  std::vector<std::pair<std::string, Peer::Stats>> all;
  for (const auto& [id, use] : uses) all.emplace_back(id, use->stats());
  return all;
}

void Connections::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  // A dial in progress fails when the sessions close; it must end before this returns.
  auto peers = std::move(peers_);
  peers_.clear();
  lock.unlock();
  const Error closed(Status::kClosed, "the engine was closed");
  for (const auto& [id, peer] : peers) retire(peer, closed);
  if (sessions_) sessions_->close();
  lock.lock();
  while (!dialing_.empty()) dialed_.wait(lock);
}

}  // namespace onesided
