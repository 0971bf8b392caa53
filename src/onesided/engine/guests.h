// Why: the other direction: engines that connected to us. They get our region table and the files our memory lies in,
// hear of every change, and leave write leases that deregister_mem looks at.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/engine/lease.h"
#include "onesided/engine/registry.h"
#include "onesided/engine/session.h"

namespace onesided {

// Internally synchronized. on_*() are the session thread's.
class Guests {
 public:
  explicit Guests(Registry& registry) : registry_(registry) {}

  Result<void> on_accepted(const std::shared_ptr<Session>& session);
  void on_lost(const std::shared_ptr<Session>& session);
  void on_table_request(const std::shared_ptr<Session>& session, const TableRequest& request);
  void on_file_request(const std::shared_ptr<Session>& session, const FileRequest& request);

  // Tell all guests; never wait for one. A guest that has not read for 8 MiB of changes is dropped.
  void added(const RegionDesc& region);
  void dropped(RegionKey key);
  // Blocks until no living guest writes into the region. False when the deadline passed first.
  bool leases_clear(RegionKey key, Deadline deadline);
  std::size_t count();

 private:
  struct Guest {
    std::shared_ptr<Session> session;
    std::shared_ptr<LeasePage> leases;  // of a local guest
    std::atomic<bool> alive{true};
    // Guarded by mutex_: what it can map. It counts in the same way: a file goes with the last region that lies in it.
    std::uint64_t epoch = 0;
    std::map<std::uint64_t, std::uint64_t> files;             // pieces in each file
    std::map<RegionKey, std::vector<std::uint64_t>> regions;  // the file of each piece
  };
  Result<void> introduce(Guest& guest) ONESIDED_REQUIRES(mutex_);
  Result<void> send_regions(Guest& guest, std::vector<RegionDesc> regions, bool complete) ONESIDED_REQUIRES(mutex_);
  Result<void> send_files(Guest& guest, const std::vector<RegionDesc>& regions) ONESIDED_REQUIRES(mutex_);
  void forget_region(Guest& guest, RegionKey key) ONESIDED_REQUIRES(mutex_);
  static void give_up(Guest& guest, const Error& error);

  Registry& registry_;
  // Held while messages are queued, so that every guest hears of changes in the order in which they happened to a
  // region.
  Mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Guest>> guests_ ONESIDED_GUARDED_BY(mutex_);  // by session id
};

}  // namespace onesided
