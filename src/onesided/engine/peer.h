// Everything this engine knows of an engine that it connected to: its session, its region table, and the links
// that can carry bytes, best first.
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

// One transport to the peer, and what went over it.
struct PeerLink {
  std::string transport;
  AnyLink link;
  std::atomic<std::uint64_t> bytes{0};

  Link& base() const {
    return std::visit([](const auto& owned) -> Link& { return *owned; }, link);
  }
};

// A peer that we dialed, or this engine itself. Internally synchronized. Retired by close() before it is destroyed;
// then no transfer of it is under way.
class Peer {
 public:
  // Dialed; learns about itself from the session's messages until open_links().
  explicit Peer(std::shared_ptr<Session> session);
  // This engine itself.
  Peer(std::string engine_id, InstanceId instance, std::shared_ptr<RegionTable> table, std::unique_ptr<CopyLink> link);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // From the session's thread.
  void on_table_offer(const TableOffer& offer, std::vector<Fd> fds);
  void on_region_update(const RegionUpdate& update, std::vector<Fd> fds);
  void on_table_synced(std::uint64_t tag);
  void on_notify_ack(const NotifyAck& ack);
  void on_lost(const Error& reason);

  // Waits for the peer's introduction and builds links with the transports, in their order. Why not, for those that
  // cannot.
  Result<void> open_links(const std::vector<Transport*>& transports, Deadline deadline);
  // Refuses new transfers, ends those under way with `why`, waits until nothing moves, closes the session and waits for
  // its end (at most 100 ms more). Idempotent. Not from the session's thread.
  void close(const Error& why);

  const std::string& engine_id() const { return engine_id_; }
  const InstanceId& instance() const { return instance_; }
  // The numeric address that it listens on, as it proved.
  const std::string& bound_address() const { return session_ ? session_->hello().bound_address : engine_id_; }
  bool is_self() const { return !session_; }
  // Nothing while the peer may be used; else why not.
  std::optional<Error> gone() const;
  std::uint64_t session_id() const { return session_ ? session_->id() : 0; }

  // A use keeps the peer from being retired. Enter, then look at gone().
  UseCount& uses() { return uses_; }
  RegionIndex& regions() { return *regions_; }
  bool is_live(RegionKey key) const { return table_->live(key); }
  // One round trip: afterwards the table holds all that the peer had registered when this was called. For peers whose
  // table is a copy; true at once for others.
  bool sync_table(Deadline deadline);
  // The first link, in order of preference, that carries the region. Waits for exported memory that the table already
  // speaks of: a little where another link could do it, until the deadline where none can. Null: none.
  PeerLink* link_for(const RegionTraits& traits, Deadline deadline);
  CopyPath copy_path(CopyLink& link) const;

  // A transfer under way: stopped when the peer is lost or closed. Its uses() was entered; transfer_ended() leaves it.
  void started(const std::shared_ptr<Transfer>& transfer);
  void transfer_ended(Transfer& transfer);

  // Sends and waits for the receipt.
  Result<void> send_notify(std::string_view name, std::string_view message, Deadline deadline);

  struct Stats {
    std::vector<std::pair<std::string, std::uint64_t>> bytes;   // by transport, in order of preference
    std::vector<std::pair<std::string, std::string>> not_used;  // transport, why
    std::size_t transfers = 0;                                  // under way
    InstanceId instance;                                        // the life of the peer that we are connected to
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
  std::optional<Error> why_gone_ ONESIDED_GUARDED_BY(mutex_);
  bool lost_ ONESIDED_GUARDED_BY(mutex_) = false;        // the session has ended
  bool introduced_ ONESIDED_GUARDED_BY(mutex_) = false;  // table and first update are here
  std::optional<Error> misled_ ONESIDED_GUARDED_BY(mutex_);
  bool linked_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::set<RegionKey> unshared_ ONESIDED_GUARDED_BY(mutex_);  // exported, but waited for in vain
  std::vector<std::pair<RegionUpdate, std::vector<Fd>>> backlog_ ONESIDED_GUARDED_BY(mutex_);  // until linked_
  std::uint64_t next_tag_ ONESIDED_GUARDED_BY(mutex_) = 1;
  std::uint64_t synced_tag_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::unordered_map<Transfer*, std::weak_ptr<Transfer>> transfers_ ONESIDED_GUARDED_BY(mutex_);

  Mutex notify_mutex_;  // held while a notification is queued, which never waits: sequence numbers go out in order
  std::uint64_t next_notify_ ONESIDED_GUARDED_BY(notify_mutex_) = 1;
  std::map<std::uint64_t, std::optional<Status>> awaited_receipts_ ONESIDED_GUARDED_BY(mutex_);  // by those who wait
};

}  // namespace onesided
