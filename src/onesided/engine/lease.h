// Write leases of peers on this host. The owner cannot observe a local peer that WRITEs into its memory. The peer
// therefore first records a lease in a page shared with the owner alone, and deregister_mem waits until no running peer
// holds a lease.
//
// Order: the writer stores its lease, then checks that the region is live; the owner retires the region, then checks
// for leases. All four accesses are sequentially consistent, so at least one side sees the other's store.
//
// A session can end while the peer's process is suspended during a write, so the end of a session does not end its
// leases. The owner revokes the page and keeps it until its cells are empty or the process has ended. Revocation uses
// the same order, so no lease can be taken on a page that the owner no longer checks.
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

  // Creates the owner's page; the owner passes file() to the peer.
  static Result<std::unique_ptr<LeasePage>> create();
  // Maps, in the peer, the file it received.
  static Result<std::unique_ptr<LeasePage>> map(Fd file, std::uint64_t nbytes);
  ~LeasePage();
  LeasePage(const LeasePage&) = delete;
  LeasePage& operator=(const LeasePage&) = delete;

  // Writer: takes a cell for the region and returns its index; waits while all cells are in use.
  std::size_t take(RegionKey key);
  void give_back(std::size_t cell);
  // To be checked after take(): if true, the owner has ended the session and nothing may be written.
  bool revoked() const { return page().revoked.load(std::memory_order_seq_cst) != 0; }

  // Owner: blocks until no cell names the region or `dead` returns true (the writer's process has ended). False if the
  // deadline passed first. When the process ends, wake() must be called; for a revoked page no such call comes, so
  // `dead` is polled.
  bool wait_clear(RegionKey key, const std::function<bool()>& dead, Deadline deadline);
  void wake();
  // To be called when the session has ended. The page may be dropped once it is idle() or the writer's process has
  // ended.
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
