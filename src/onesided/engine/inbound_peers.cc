#include "onesided/engine/inbound_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "onesided/base/log.h"

namespace onesided {
namespace {

// Limit of one message; after each message the peer's reading is checked.
constexpr std::size_t kRegionsAtOnce = 8192;

Deadline at_once() { return Deadline::after_ms(std::int64_t{0}); }

}  // namespace

Result<void> InboundPeers::on_accepted(const std::shared_ptr<Session>& session) {
  auto peer = std::make_shared<InboundPeer>();
  peer->session = session;
  std::vector<Fd> fds;
  if (session->peer().local) {
    ONESIDED_TRY_ASSIGN(leases, LeasePage::create());
    peer->leases = std::move(leases);
    fds.push_back(registry_.table()->file().duplicate());
    fds.push_back(peer->leases->file().duplicate());
    if (!fds[0].valid() || !fds[1].valid())
      return Error(Status::kResourceExhausted, "the owner has no file descriptors left for another peer");
  }
  MutexLock lock(mutex_);
  if (peer->leases)
    ONESIDED_TRY(
        session->send(TableOffer{registry_.table()->nbytes(), 0, LeasePage::kBytes}, std::move(fds), at_once()));
  // The peer starts in the state `behind`: the regions follow when this message has been sent.
  inbound_[session->id()] = peer;
  return {};
}

void InboundPeers::on_drained(const std::shared_ptr<Session>& session) {
  MutexLock lock(mutex_);
  const auto at = inbound_.find(session->id());
  if (at != inbound_.end() && at->second->behind) catch_up(*at->second);
}

// True if a change can be sent now. Otherwise catch_up() sends it later.
bool InboundPeers::can_send(InboundPeer& peer) {
  peer.behind = peer.behind || !peer.session->drained();
  return !peer.behind && !peer.given_up;
}

void InboundPeers::catch_up(InboundPeer& peer) {
  if (peer.given_up) return;
  if (auto sent = send_all(peer); !sent.ok()) give_up(peer, sent.error());
}

// Sends all changes that the peer does not have, while it reads; the rest when it has read on.
Result<void> InboundPeers::send_all(InboundPeer& peer) {
  std::vector<RegionKey> dropped;
  std::vector<RegionDesc> added;
  std::set<RegionKey> live;
  for (auto& region : registry_.snapshot()) {
    if (!concerns(peer, region)) continue;
    live.insert(region.key);
    if (!peer.regions.contains(region.key)) added.push_back(std::move(region));
  }
  for (const auto& [key, files] : peer.regions)
    if (!live.contains(key)) dropped.push_back(key);
  while (peer.session->drained()) {
    if (!dropped.empty()) {
      ONESIDED_TRY(send_dropped(peer, dropped));
    } else if (!added.empty()) {
      ONESIDED_TRY(send_added(peer, added));
    } else if (!std::exchange(peer.introduced, true)) {
      RegionUpdate complete;
      complete.complete = true;
      ONESIDED_TRY(send_update(peer, std::move(complete), {}));
    } else if (peer.asked) {
      ONESIDED_TRY(answer(peer));
    } else {
      peer.behind = false;
      return {};
    }
  }
  peer.behind = true;
  return {};
}

Result<void> InboundPeers::send_update(InboundPeer& peer, RegionUpdate update, std::vector<Fd> fds) {
  update.epoch = ++peer.epoch;
  return peer.session->send(update, std::move(fds), at_once());
}

Result<void> InboundPeers::answer(InboundPeer& peer) {
  return peer.session->send(TableSynced{*std::exchange(peer.asked, std::nullopt)}, {}, at_once());
}

// Sends, and removes from the end of the list, as many regions as fit into one message.
Result<void> InboundPeers::send_added(InboundPeer& peer, std::vector<RegionDesc>& regions) {
  RegionUpdate update;
  std::vector<Fd> fds;
  while (!regions.empty() && update.added.size() < kRegionsAtOnce) {
    auto& region = regions.back();
    if (peer.leases) {
      if (!update.added.empty() && fds.size() + region.pieces.size() > kMaxAttachedFds) break;
      ONESIDED_TRY(send_files(peer, region, update, fds));
    } else {
      region.pieces.clear();
      peer.regions[region.key];
    }
    update.added.push_back(std::move(region));
    regions.pop_back();
  }
  return send_update(peer, std::move(update), std::move(fds));
}

// Files are sent before the regions that lie in them; if one region needs more files than one message can carry, in
// preceding messages.
Result<void> InboundPeers::send_files(InboundPeer& peer, const RegionDesc& region, RegionUpdate& update,
                                      std::vector<Fd>& fds) {
  auto& files = peer.regions[region.key];
  for (const auto& piece : region.pieces) {
    if (!peer.files.contains(piece.file_id)) {
      Fd fd = registry_.files().duplicate(piece.file_id);
      // No descriptor left, or deregistered meanwhile: the peer does not receive the file and uses another transport.
      if (!fd.valid()) continue;
      update.file_ids.push_back(piece.file_id);
      fds.push_back(std::move(fd));
    }
    ++peer.files[piece.file_id];
    files.push_back(piece.file_id);
    if (fds.size() == kMaxAttachedFds)
      ONESIDED_TRY(send_update(peer, std::exchange(update, RegionUpdate()), std::exchange(fds, {})));
  }
  return {};
}

// Sends, and removes from the end of the list, as many keys as fit into one message.
Result<void> InboundPeers::send_dropped(InboundPeer& peer, std::vector<RegionKey>& keys) {
  RegionUpdate update;
  for (; !keys.empty() && update.dropped.size() < kRegionsAtOnce; keys.pop_back()) {
    const auto region = peer.regions.extract(keys.back());
    for (const auto file : region.mapped())
      if (--peer.files[file] == 0) peer.files.erase(file);
    update.dropped.push_back(keys.back());
  }
  return send_update(peer, std::move(update), {});
}

bool InboundPeers::concerns(const InboundPeer& peer, const RegionDesc& region) {
  return !peer.leases || !region.pieces.empty();
}

void InboundPeers::give_up(InboundPeer& peer, const Error& error) {
  peer.given_up = true;
  if (!peer.session->alive()) return;
  log_line(LogLevel::kWarn,
           fmt::format("changes of registered memory cannot be sent to peer {}, so it is disconnected: {}",
                       peer.session->peer().engine_id, error.text()));
  peer.session->close("changes of registered memory cannot be sent to it");
}

void InboundPeers::added(const RegionDesc& region) {
  MutexLock lock(mutex_);
  // Another thread may have sent it already, or deregistered it.
  if (!registry_.table()->live(region.key)) return;
  for (auto& [id, peer] : inbound_) {
    if (!concerns(*peer, region) || !can_send(*peer) || peer->regions.contains(region.key)) continue;
    std::vector<RegionDesc> added = {region};
    if (auto sent = send_added(*peer, added); !sent.ok()) give_up(*peer, sent.error());
  }
}

void InboundPeers::dropped(RegionKey key) {
  MutexLock lock(mutex_);
  for (auto& [id, peer] : inbound_) {
    if (!can_send(*peer) || !peer->regions.contains(key)) continue;
    std::vector<RegionKey> dropped = {key};
    if (auto sent = send_dropped(*peer, dropped); !sent.ok()) give_up(*peer, sent.error());
  }
}

void InboundPeers::on_lost(const std::shared_ptr<Session>& session) {
  MutexLock lock(mutex_);
  const auto peer = inbound_.extract(session->id());
  if (peer.empty() || !peer.mapped()->leases) return;
  // Its process may still run and may be in the middle of a write.
  peer.mapped()->leases->revoke();
  departed_.push_back(peer.mapped());
  forget_departed();
}

void InboundPeers::forget_departed() {
  std::erase_if(departed_, [](const auto& peer) { return peer->leases->idle() || peer->session->process_ended(); });
}

void InboundPeers::on_table_request(const std::shared_ptr<Session>& session, const TableRequest& request) {
  MutexLock lock(mutex_);
  const auto at = inbound_.find(session->id());
  if (at == inbound_.end()) return;
  // The answer to the newest request answers earlier ones.
  auto& peer = *at->second;
  peer.asked = request.tag;
  if (!can_send(peer)) return;
  if (auto sent = answer(peer); !sent.ok()) give_up(peer, sent.error());
}

bool InboundPeers::leases_clear(RegionKey key, Deadline deadline) {
  std::vector<std::shared_ptr<InboundPeer>> writers;
  {
    MutexLock lock(mutex_);
    forget_departed();
    writers = departed_;
    for (const auto& [id, peer] : inbound_)
      if (peer->leases) writers.push_back(peer);
  }
  return std::all_of(writers.begin(), writers.end(), [&](const auto& peer) {
    return peer->leases->wait_clear(key, [&] { return peer->session->process_ended(); }, deadline);
  });
}

std::size_t InboundPeers::count() {
  MutexLock lock(mutex_);
  return inbound_.size();
}

}  // namespace onesided
