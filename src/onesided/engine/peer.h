// An engine that this engine connected to: its session, its region table, and the links that can carry bytes, best
// first.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/base/use_count.h"
#include "onesided/engine/lease.h"
#include "onesided/engine/piece.h"
#include "onesided/engine/region_table.h"
#include "onesided/engine/session.h"
#include "onesided/engine/transfer.h"
#include "onesided/transport/transport.h"

namespace onesided {

// One transport to the peer, and the bytes it has moved.
struct PeerLink {
  std::string transport;
  AnyLink link;
  std::atomic<std::uint64_t> bytes{0};

  Link& base() const {
    return std::visit([](const auto& owned) -> Link& { return *owned; }, link);
  }
};

// A peer that this engine dialed, or this engine itself. Internally synchronized. close() retires it before it is
// destroyed; afterwards none of its transfers is unfinished.
class Peer {
 public:
  // A dialed peer. The session's messages supply its table and regions until open_links().
  explicit Peer(std::shared_ptr<Session> session);
  // This engine itself.
  Peer(std::string engine_id, InstanceId instance, std::shared_ptr<RegionTable> table, std::unique_ptr<CopyLink> link);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Called on the session's thread.
  void on_table_offer(const TableOffer& offer, std::vector<Fd> fds);
  void on_region_update(const RegionUpdate& update, std::vector<Fd> fds);
  void on_table_synced(std::uint64_t tag);
  void on_notify_ack(const NotifyAck& ack);
  void on_lost(const Error& reason);

  // Waits for the peer's introduction and builds links with the transports, in their order. Records the reason for each
  // transport that cannot be used.
  Result<void> open_links(const std::vector<Transport*>& transports, Deadline deadline);
  // Refuses new transfers, ends unfinished ones with `why`, blocks until no byte can move, closes the session and waits
  // for its end (at most 100 ms more). Idempotent. Must not be called on the session's thread.
  void close(const Error& why);

  const std::string& engine_id() const { return engine_id_; }
  const InstanceId& instance() const { return instance_; }
  // The numeric address that it listens on, authenticated by the handshake.
  const std::string& bound_address() const { return session_ ? session_->hello().bound_address : engine_id_; }
  bool is_self() const { return !session_; }
  // The reason why the peer cannot be used, or std::nullopt while it can.
  std::optional<Error> unusable_reason() const;
  std::uint64_t session_id() const { return session_ ? session_->id() : 0; }

  // A use keeps the peer from being retired. Enter first, then check unusable_reason().
  UseCount& uses() { return uses_; }
  RegionIndex& regions() { return *regions_; }
  bool is_live(RegionKey key) const { return table_->live(key); }
  // One round trip: afterwards the table contains all regions that the peer had registered when this was called. Needed
  // for peers whose table is a copy; returns true immediately for others.
  bool sync_table(Deadline deadline);
  // The first link, in order of preference, that carries the region; null if there is none. If the table lists exported
  // memory whose file has not arrived, waits for it: briefly if another link could carry the region, otherwise until
  // the deadline.
  PeerLink* link_for(const RegionTraits& traits, Deadline deadline);
  CopyPath copy_path(CopyLink& link) const;

  // Adds an unfinished transfer; it is stopped when the peer is lost or closed. The caller has entered uses();
  // transfer_ended() leaves it.
  void started(const std::shared_ptr<Transfer>& transfer);
  void transfer_ended(Transfer& transfer);

  // Sends the notification and waits for the receipt.
  Result<void> send_notify(std::string_view name, std::string_view message, Deadline deadline);

  struct Stats {
    std::vector<std::pair<std::string, std::uint64_t>> bytes;   // by transport, in order of preference
    std::vector<std::pair<std::string, std::string>> not_used;  // transport, why
    std::size_t transfers = 0;                                  // under way
    InstanceId instance;                                        // the connected instance of the peer
  };
  Stats stats() const;

 private:
  void share(const RegionUpdate& update, std::vector<Fd> fds) ONESIDED_REQUIRES(mutex_);
  void apply(const RegionUpdate& update) ONESIDED_REQUIRES(mutex_);
  bool wait_until_shared(std::size_t link, const RegionTraits& traits, Deadline deadline);
  void stop_all(const Error& why);
  Result<std::uint64_t> queue_notify(std::string_view name, std::string_view message, Deadline deadline);

  const std::shared_ptr<Session> session_;
  const std::string engine_id_;
  const InstanceId instance_;
  UseCount uses_;
  std::atomic<bool> gone_{false};

  // Written before open_links() returns, constant afterwards.
  std::shared_ptr<RegionTable> table_;
  std::unique_ptr<RegionIndex> regions_;
  std::unique_ptr<LeasePage> leases_;
  std::vector<std::unique_ptr<PeerLink>> links_;
  std::vector<std::pair<std::string, std::string>> not_used_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<Error> unusable_ ONESIDED_GUARDED_BY(mutex_);
  bool lost_ ONESIDED_GUARDED_BY(mutex_) = false;        // the session has ended
  bool introduced_ ONESIDED_GUARDED_BY(mutex_) = false;  // table and first update are here
  std::optional<Error> protocol_error_ ONESIDED_GUARDED_BY(mutex_);
  bool linked_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::set<RegionKey> unshared_ ONESIDED_GUARDED_BY(mutex_);  // exported, but the file did not arrive in time
  std::vector<std::pair<RegionUpdate, std::vector<Fd>>> backlog_ ONESIDED_GUARDED_BY(mutex_);  // until linked_
  std::uint64_t next_tag_ ONESIDED_GUARDED_BY(mutex_) = 1;
  std::uint64_t synced_tag_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::unordered_map<Transfer*, std::weak_ptr<Transfer>> transfers_ ONESIDED_GUARDED_BY(mutex_);

  Mutex
      notify_mutex_;  // held while a notification is queued (never blocks), so that sequence numbers are sent in order
  std::uint64_t next_notify_ ONESIDED_GUARDED_BY(notify_mutex_) = 1;
  std::map<std::uint64_t, std::optional<Status>> awaited_receipts_ ONESIDED_GUARDED_BY(mutex_);  // by waiting callers
};

}  // namespace onesided
