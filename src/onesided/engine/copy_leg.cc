#include "onesided/engine/copy_leg.h"

#include <fmt/format.h>

#include <algorithm>

namespace onesided {
namespace {

// Limits the number of tiny moves in one piece, so that stop and deadline are checked as often as with large moves.
constexpr std::size_t kPieceMoves = 512;

}  // namespace

class CopyLeg::Sink : public PieceSink {
 public:
  Sink(CopyLeg& leg, std::span<const Move> moves) : leg_(leg), moves_(moves) {}
  void arrived(std::size_t move, std::uint64_t from, std::uint64_t nbytes) override {
    leg_.transfer_->arrived(moves_[move], from, nbytes);
    leg_.moved_->fetch_add(nbytes, std::memory_order_relaxed);
  }
  std::uint64_t refused(std::size_t move, std::uint64_t at, const Error& error) override {
    return leg_.transfer_->refused(moves_[move], at, error);
  }

 private:
  CopyLeg& leg_;
  const std::span<const Move> moves_;
};

CopyLeg::CopyLeg(std::shared_ptr<Transfer> transfer, CopyPath path, std::vector<Move> moves, const void* lane,
                 std::atomic<std::uint64_t>* moved, bool whole)
    : transfer_(std::move(transfer)),
      path_(path),
      moves_(std::move(moves)),
      lane_(lane),
      moved_(moved),
      whole_(whole) {}

std::optional<CopyLeg::Piece> CopyLeg::take() {
  MutexLock lock(mutex_);
  if (!stopped_ && transfer_->deadline().passed() && next_move_ < moves_.size())
    stopped_ = Error(Status::kTimeout, "the deadline passed before all bytes had moved");
  if (stopped_ || next_move_ == moves_.size()) {
    exhausted_ = true;
    const bool ended = ends_now();
    const auto why = stopped_;
    lock.unlock();
    if (ended) report_end(why);
    return std::nullopt;
  }
  Piece piece;
  const Move& move = moves_[next_move_];
  if (!whole_ && (next_byte_ > 0 || move.nbytes > kPieceBytes)) {
    piece.part = move;
    piece.part.local += next_byte_;
    piece.part.remote += next_byte_;
    piece.part.nbytes = std::min(kPieceBytes, move.nbytes - next_byte_);
    next_byte_ += piece.part.nbytes;
    if (next_byte_ == move.nbytes) {
      next_byte_ = 0;
      ++next_move_;
    }
  } else {
    const std::size_t first = next_move_++;
    std::uint64_t nbytes = move.nbytes;
    while (next_move_ < moves_.size() && next_move_ - first < kPieceMoves &&
           nbytes + moves_[next_move_].nbytes <= kPieceBytes)
      nbytes += moves_[next_move_++].nbytes;
    piece.moves = std::span(moves_).subspan(first, next_move_ - first);
  }
  if (next_move_ == moves_.size()) exhausted_ = true;
  ++running_;
  return piece;
}

bool CopyLeg::run_piece() {
  const auto piece = take();
  if (!piece) return false;
  const auto moves = piece->moves.empty() ? std::span(&piece->part, 1) : piece->moves;
  Sink sink(*this, moves);
  move_piece(path_, transfer_->op(), moves, sink);
  give_back();
  return true;
}

void CopyLeg::give_back() {
  MutexLock lock(mutex_);
  --running_;
  const bool ended = ends_now();
  const auto why = stopped_;
  lock.unlock();
  if (ended) report_end(why);
}

void CopyLeg::stop(const Error& why) {
  MutexLock lock(mutex_);
  if (!stopped_ && next_move_ < moves_.size()) stopped_ = why;
  if (stopped_) exhausted_ = true;
  const bool ended = ends_now();
  const auto cause = stopped_;
  lock.unlock();
  if (ended) report_end(cause);
}

bool CopyLeg::ends_now() {
  if (ended_ || running_ > 0 || (!stopped_ && next_move_ < moves_.size())) return false;
  ended_ = true;
  return true;
}

void CopyLeg::report_end(const std::optional<Error>& why) {
  if (why) transfer_->left(*why);
  transfer_->leg_ended();
}

}  // namespace onesided
