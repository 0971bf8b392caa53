#include "ascend_sim/hccl/peer_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "onesided/base/align.h"
#include "onesided/base/copy.h"

namespace onesided::sim::hccl {

struct PeerData::Stage {
  struct Piece {
    std::vector<std::byte> bytes;
    std::shared_ptr<void> registered;
    std::uint64_t offset = 0;
    std::uint64_t nbytes = 0;  // 0: holds nothing
    std::shared_ptr<Transfer> transfer;
  };
  std::array<Piece, 2> pieces;
  ~Stage() {
    for (Piece& piece : pieces)  // no byte may arrive after the buffer has gone
      if (piece.transfer) piece.transfer->cancel();
  }
};

Result<PeerData> PeerData::open(const Communicator& group, std::uint32_t peer, const BufferRef& ref,
                                const std::byte* payload, Deadline deadline) {
  PeerData data(group, peer, ref, deadline);
  if (ref.nbytes == 0) return data;
  if (ref.on_page != 0) {
    data.direct_ = payload;
  } else if (group.in_this_process(peer)) {
    data.direct_ = reinterpret_cast<const std::byte*>(ref.address);
  } else if (group.on_this_host(peer) && ref.file >= 0) {
    ONESIDED_TRY_ASSIGN(base, PeerFiles::process().at(group.member(peer).pid, ref.file, ref.inode, ref.file_offset,
                                                      ref.nbytes, data.view_));
    data.direct_ = base;
  }
  return data;
}

Result<const std::byte*> PeerData::at(std::uint64_t offset, std::uint64_t nbytes) {
  if (!range_within(offset, nbytes, 0, ref_.nbytes)) {
    return Error(Status::kParamInvalid,
                 fmt::format("{} bytes at {} of rank {}'s data, which has {}", nbytes, offset, peer_, ref_.nbytes));
  }
  if (direct_ || nbytes == 0) return direct_ + offset;
  if (!stage_) stage_ = std::make_shared<Stage>();
  std::size_t which = 0;
  for (; which < stage_->pieces.size(); ++which) {
    const Stage::Piece& piece = stage_->pieces[which];
    if (piece.nbytes != 0 && range_within(offset, nbytes, piece.offset, piece.nbytes)) break;
  }
  if (which == stage_->pieces.size()) {
    which = 0;
    ONESIDED_TRY(start(which, offset, nbytes));
  }
  ONESIDED_TRY(finish(which));
  const Stage::Piece& piece = stage_->pieces[which];
  return piece.bytes.data() + (offset - piece.offset);
}

Result<void> PeerData::start(std::size_t which, std::uint64_t offset, std::uint64_t nbytes) {
  Stage::Piece& piece = stage_->pieces[which];
  if (piece.transfer) ONESIDED_TRY(finish(which));
  if (piece.bytes.empty()) {
    piece.bytes.resize(kEnginePiece);
    ONESIDED_TRY_ASSIGN(registered,
                        Registrations::of(group_->board()).keep(piece.bytes.data(), piece.bytes.size(), deadline_));
    piece.registered = std::move(registered);
  }
  const TransferItem item{reinterpret_cast<std::uint64_t>(piece.bytes.data()), ref_.address + offset, nbytes};
  const int left = deadline_.poll_timeout_ms();
  ONESIDED_TRY_ASSIGN(transfer, group_->board().engine().transfer_async(
                                    group_->member(peer_).engine_id, Op::kRead, {{&item, 1}, nullptr, {}},
                                    left < 0 ? std::nullopt : std::optional<std::int64_t>(std::max(left, 1))));
  piece.offset = offset;
  piece.nbytes = nbytes;
  piece.transfer = std::move(transfer);
  return {};
}

Result<void> PeerData::finish(std::size_t which) {
  Stage::Piece& piece = stage_->pieces[which];
  if (!piece.transfer) return {};
  const auto transfer = std::exchange(piece.transfer, nullptr);
  if (const auto waited = transfer->wait(deadline_); !waited.ok()) transfer->cancel();
  if (const auto error = transfer->error()) {
    piece.nbytes = 0;
    return error->with_context(fmt::format("reading rank {}'s data", peer_));
  }
  return {};
}

Result<void> PeerData::copy_to(void* to, std::uint64_t offset, std::uint64_t nbytes) {
  if (direct_) {
    ONESIDED_TRY_ASSIGN(from, at(offset, nbytes));
    copy_bytes(to, from, nbytes);
    return {};
  }
  // One piece is under way while the one before is copied out.
  if (nbytes != 0 && !stage_) stage_ = std::make_shared<Stage>();
  const auto length_at = [&](std::uint64_t done) { return std::min(kEnginePiece, nbytes - done); };
  std::size_t which = 0;
  if (nbytes != 0) ONESIDED_TRY(start(which, offset, length_at(0)));
  for (std::uint64_t done = 0; done < nbytes;) {
    const std::uint64_t length = length_at(done);
    if (done + length < nbytes) ONESIDED_TRY(start(1 - which, offset + done + length, length_at(done + length)));
    ONESIDED_TRY(finish(which));
    copy_bytes(static_cast<std::byte*>(to) + done, stage_->pieces[which].bytes.data(), length);
    done += length;
    which = 1 - which;
  }
  return {};
}

}  // namespace onesided::sim::hccl
