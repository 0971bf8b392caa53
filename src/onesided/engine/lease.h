// A peer on this host that WRITEs into our memory is seen by nobody. It says so first, in a page that we gave to
// it alone, and deregister_mem waits until no living peer says so any more.
//
// The order that makes it safe: the writer stores its lease, then looks whether the region is live; the owner retires
// the region, then looks for leases. Both are sequentially consistent, so at least one of them sees the other.
//
// A session can end while the peer's process lives on, frozen in the middle of a write: the end of a session says
// nothing of leases. The owner revokes the page and keeps it until its cells are empty or the process is dead; in the
// same order, so that nobody takes a lease on a page that is not looked at any more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "onesided/base/clock.h"
#include "onesided/base/fd.h"
#include "onesided/base/result.h"
#include "onesided/transport/transport.h"

namespace onesided {

// One page of leases, mapped by an owner and one peer. Internally synchronized by its atomics.
class LeasePage {
 public:
  static constexpr std::uint64_t kBytes = 4096;
  static constexpr std::size_t kCells = 504;

  // The owner makes it and passes file() to the peer.
  static Result<std::unique_ptr<LeasePage>> create();
  // The peer maps what it was given.
  static Result<std::unique_ptr<LeasePage>> map(Fd file, std::uint64_t nbytes);
  ~LeasePage();
  LeasePage(const LeasePage&) = delete;
  LeasePage& operator=(const LeasePage&) = delete;

  // Writer's side: takes a cell for the region; waits while all are taken (as many writes are under way). Returns
  // which.
  std::size_t take(RegionKey key);
  void give_back(std::size_t cell);
  // To be asked after take(): the owner has ended the session, nothing may be written.
  bool revoked() const { return page().revoked.load(std::memory_order_seq_cst) != 0; }

  // Owner's side: blocks until no cell names the region, or `dead` says that the writer's process has ended. False when
  // the deadline passed first. Whoever learns of a death calls wake(); of a revoked page nobody does, so it is asked
  // again now and then.
  bool wait_clear(RegionKey key, const std::function<bool()>& dead, Deadline deadline);
  void wake();
  // The session has ended. The page may be dropped once it is idle() or the writer's process is dead.
  void revoke();
  bool idle() const;
  const Fd& file() const { return file_; }

 private:
  struct Page {
    std::atomic<std::uint32_t> waiters;
    std::atomic<std::uint32_t> releases;
    std::atomic<std::uint64_t> revoked;
    std::array<std::uint64_t, 6> reserved;
    std::array<std::atomic<std::uint64_t>, kCells> cells;  // index << 32 | generation, or 0
  };
  static_assert(sizeof(Page) == kBytes);
  LeasePage(void* base, Fd file) : base_(base), file_(std::move(file)) {}
  bool holds(RegionKey key) const;
  Page& page() const { return *static_cast<Page*>(base_); }

  void* base_;
  Fd file_;
};

}  // namespace onesided
