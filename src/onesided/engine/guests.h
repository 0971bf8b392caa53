// The other direction: engines that connected to us. They get our region table and the files our memory lies in,
// hear of every change, and leave write leases that deregister_mem looks at.
//
// A guest that reads what it is told hears of each change at once. One that does not, because it is frozen or slow, is
// not told more: nothing is kept for it but what it knows, and once it has read on it is told the difference to what is
// registered then. So it costs one message and the files in it, however much changes meanwhile and however long it
// takes.
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

// Internally synchronized. on_*() are the session thread's.
class Guests {
 public:
  explicit Guests(Registry& registry) : registry_(registry) {}

  Result<void> on_accepted(const std::shared_ptr<Session>& session);
  void on_drained(const std::shared_ptr<Session>& session);
  void on_lost(const std::shared_ptr<Session>& session);
  void on_table_request(const std::shared_ptr<Session>& session, const TableRequest& request);

  // Tell all guests; never wait for one.
  void added(const RegionDesc& region);
  void dropped(RegionKey key);
  // Blocks until nobody writes into the region, whether still connected or not. False when the deadline passed first.
  bool leases_clear(RegionKey key, Deadline deadline);
  // Those connected.
  std::size_t count();

 private:
  struct Guest {
    std::shared_ptr<Session> session;
    std::shared_ptr<LeasePage> leases;  // of a local guest
    // Guarded by mutex_.
    bool introduced = false;
    bool behind = true;                  // told nothing until on_drained()
    bool given_up = false;               // told nothing any more
    std::optional<std::uint64_t> asked;  // tag of its last TableRequest, until it is answered
    std::uint64_t epoch = 0;
    // What it knows: a local guest of what it can map only, since it reads the table itself. It counts files in the
    // same way: one goes with the last region that lies in it.
    std::map<RegionKey, std::vector<std::uint64_t>> regions;  // the file of each piece
    std::map<std::uint64_t, std::uint64_t> files;             // pieces in each file
  };
  using Told = Result<void>;
  bool follows(Guest& guest) ONESIDED_REQUIRES(mutex_);
  void catch_up(Guest& guest) ONESIDED_REQUIRES(mutex_);
  Told tell_all(Guest& guest) ONESIDED_REQUIRES(mutex_);
  Told tell(Guest& guest, RegionUpdate update, std::vector<Fd> fds) ONESIDED_REQUIRES(mutex_);
  Told answer(Guest& guest) ONESIDED_REQUIRES(mutex_);
  Told tell_added(Guest& guest, std::vector<RegionDesc>& regions) ONESIDED_REQUIRES(mutex_);
  Told tell_dropped(Guest& guest, std::vector<RegionKey>& keys) ONESIDED_REQUIRES(mutex_);
  Told tell_files(Guest& guest, const RegionDesc& region, RegionUpdate& update, std::vector<Fd>& fds)
      ONESIDED_REQUIRES(mutex_);
  static bool concerns(const Guest& guest, const RegionDesc& region);
  static void give_up(Guest& guest, const Error& error);
  void forget_departed() ONESIDED_REQUIRES(mutex_);

  Registry& registry_;
  // Held while messages are queued, so that every guest hears of changes in the order in which they happened to a
  // region.
  Mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Guest>> guests_ ONESIDED_GUARDED_BY(mutex_);  // by session id
  // Their sessions have ended, but they were still writing.
  std::vector<std::shared_ptr<Guest>> departed_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
