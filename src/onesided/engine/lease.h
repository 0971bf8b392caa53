// Why: a peer on this host that WRITEs into our memory is seen by nobody. It says so first, in a page that we gave to
// it alone, and deregister_mem waits until no living peer says so any more.
//
// The order that makes it safe: the writer stores its lease, then looks whether the region is live; the owner retires
// the region, then looks for leases. Both are sequentially consistent, so at least one of them sees the other.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
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

  // Owner's side: blocks until no cell names the region or the peer is dead. False when the deadline passed first.
  bool wait_clear(RegionKey key, const std::atomic<bool>& peer_alive, Deadline deadline);
  // The peer died: whoever waits for it looks again.
  void wake();
  const Fd& file() const { return file_; }

 private:
  struct Page {
    std::atomic<std::uint32_t> waiters;
    std::atomic<std::uint32_t> releases;
    std::array<std::uint64_t, 7> reserved;
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
