// Inbound peers: engines that connected to this one. Each receives the region table, the files that contain the
// registered memory, and every change. Their write leases are checked by deregister_mem.
//
// If a peer reads its messages, each change is sent immediately. If a peer does not read, because it is suspended or
// slow, no further changes are queued; only the state that it has is recorded. When it has read on, it receives the
// difference between that state and the registered memory. A suspended peer therefore costs one message and the files
// in it, independent of the number of changes and of the time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/engine/lease.h"
#include "onesided/engine/registry.h"
#include "onesided/engine/session.h"

namespace onesided {

// Internally synchronized. on_*() are called on the session's thread.
class InboundPeers {
 public:
  explicit InboundPeers(Registry& registry) : registry_(registry) {}

  Result<void> on_accepted(const std::shared_ptr<Session>& session);
  void on_drained(const std::shared_ptr<Session>& session);
  void on_lost(const std::shared_ptr<Session>& session);
  void on_table_request(const std::shared_ptr<Session>& session, const TableRequest& request);

  // Send the change to all inbound peers; never block on one of them.
  void added(const RegionDesc& region);
  void dropped(RegionKey key);
  // Blocks until no inbound peer, connected or disconnected, writes into the region. False if the deadline passed
  // first.
  bool leases_clear(RegionKey key, Deadline deadline);
  // The number of connected inbound peers.
  std::size_t count();

 private:
  struct InboundPeer {
    std::shared_ptr<Session> session;
    std::shared_ptr<LeasePage> leases;  // of a local peer
    // Guarded by mutex_.
    bool introduced = false;
    bool behind = true;                  // no changes are sent until on_drained()
    bool given_up = false;               // no changes are sent any more
    std::optional<std::uint64_t> asked;  // tag of its last TableRequest, until it is answered
    std::uint64_t epoch = 0;
    // The state that the peer has. For a local peer, which reads the table itself, only regions that it can map. The
    // peer counts files in the same way and drops a file with the last region in it.
    std::map<RegionKey, std::vector<std::uint64_t>> regions;  // the file of each piece
    std::map<std::uint64_t, std::uint64_t> files;             // pieces in each file
  };
  bool can_send(InboundPeer& peer) ONESIDED_REQUIRES(mutex_);
  void catch_up(InboundPeer& peer) ONESIDED_REQUIRES(mutex_);
  Result<void> send_all(InboundPeer& peer) ONESIDED_REQUIRES(mutex_);
  Result<void> send_update(InboundPeer& peer, RegionUpdate update, std::vector<Fd> fds) ONESIDED_REQUIRES(mutex_);
  Result<void> answer(InboundPeer& peer) ONESIDED_REQUIRES(mutex_);
  Result<void> send_added(InboundPeer& peer, std::vector<RegionDesc>& regions) ONESIDED_REQUIRES(mutex_);
  Result<void> send_dropped(InboundPeer& peer, std::vector<RegionKey>& keys) ONESIDED_REQUIRES(mutex_);
  Result<void> send_files(InboundPeer& peer, const RegionDesc& region, RegionUpdate& update, std::vector<Fd>& fds)
      ONESIDED_REQUIRES(mutex_);
  static bool concerns(const InboundPeer& peer, const RegionDesc& region);
  static void give_up(InboundPeer& peer, const Error& error);
  void forget_departed() ONESIDED_REQUIRES(mutex_);

  Registry& registry_;
  // Held while messages are queued, so that every peer receives the changes of a region in their order.
  Mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<InboundPeer>> inbound_ ONESIDED_GUARDED_BY(mutex_);  // by session id
  // Peers whose sessions ended while they were writing.
  std::vector<std::shared_ptr<InboundPeer>> departed_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
