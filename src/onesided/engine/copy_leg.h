// The part of a transfer that goes over a CopyLink. It is cut into pieces; the waiting caller and the workers copy
// them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/engine/piece.h"
#include "onesided/engine/transfer.h"

namespace onesided {

// Internally synchronized.
class CopyLeg : public Leg {
 public:
  // `lane`: legs with the same lane (those of one peer) share one turn in the workers' schedule. `moved`: counter of
  // bytes for statistics; must outlive the leg's work. With `whole` set, moves are never cut (overlapping ranges of one
  // engine).
  CopyLeg(std::shared_ptr<Transfer> transfer, CopyPath path, std::vector<Move> moves, const void* lane,
          std::atomic<std::uint64_t>* moved, bool whole);

  // Copies one piece on the calling thread. False if no piece was left.
  bool run_piece() override;
  // True while there may be pieces for other threads.
  bool has_more() const { return !exhausted_.load(std::memory_order_relaxed); }
  const void* lane() const { return lane_; }
  void stop(const Error& why) override;

 private:
  struct Piece {
    std::span<const Move> moves;  // whole ones
    Move part;                    // or a part of one, when `moves` is empty
  };
  class Sink;
  std::optional<Piece> take() ONESIDED_EXCLUDES(mutex_);
  void give_back() ONESIDED_EXCLUDES(mutex_);
  // True exactly once: when no bytes are left to move and no thread is copying.
  bool ends_now() ONESIDED_REQUIRES(mutex_);
  void report_end(const std::optional<Error>& why) ONESIDED_EXCLUDES(mutex_);

  const std::shared_ptr<Transfer> transfer_;
  const CopyPath path_;
  const std::vector<Move> moves_;
  const void* const lane_;
  std::atomic<std::uint64_t>* const moved_;
  const bool whole_;
  std::atomic<bool> exhausted_{false};

  Mutex mutex_;
  std::size_t next_move_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_byte_ ONESIDED_GUARDED_BY(mutex_) = 0;  // of moves_[next_move_]
  std::uint32_t running_ ONESIDED_GUARDED_BY(mutex_) = 0;    // pieces being moved
  bool ended_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::optional<Error> stopped_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
