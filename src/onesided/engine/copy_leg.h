// A transfer over a CopyLink is cut into pieces that any thread can take: its caller's, or workers'.
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
  // `lane`: legs of equal lanes (one peer's) share a worker's attention as one. `moved`: where bytes are counted for
  // statistics; outlives the leg's work. With `whole` set, moves are never cut (overlapping ranges of one engine).
  CopyLeg(std::shared_ptr<Transfer> transfer, CopyPath path, std::vector<Move> moves, const void* lane,
          std::atomic<std::uint64_t>* moved, bool whole);

  // Moves one piece on this thread. False when there was none left to take.
  bool run_piece() override;
  // There may be pieces for other threads too.
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
  // True once: nothing is left to move, and nobody is moving.
  bool ends_now() ONESIDED_REQUIRES(mutex_);
  void tell_end(const std::optional<Error>& why) ONESIDED_EXCLUDES(mutex_);

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
