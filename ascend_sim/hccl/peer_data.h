// Another rank's data, piece by piece: in place where it can be mapped or lies on a page, else read by the engine into
// a buffer of this rank's.
#pragma once

#include <cstddef>
#include <memory>

#include "ascend_sim/hccl/communicator.h"

namespace onesided::sim::hccl {

// A buffer of another rank, for one operation. Confined to one thread.
class PeerData {
 public:
  // `payload`: where on the page the data is, if it is there. PARAM_INVALID, NOT_FOUND, FAILED: it cannot be mapped.
  static Result<PeerData> open(const Communicator& group, std::uint32_t peer, const BufferRef& ref,
                               const std::byte* payload, Deadline deadline);

  // [offset, offset + nbytes) of the buffer, good until the next call. At most piece_bytes() at a time. PARAM_INVALID:
  // beyond its end; PEER_LOST, TIMEOUT and others where the engine reads.
  Result<const std::byte*> at(std::uint64_t offset, std::uint64_t nbytes);
  Result<void> copy_to(void* to, std::uint64_t offset, std::uint64_t nbytes);
  // Small enough for the caches, where the data is in place; large where a request travels.
  std::uint64_t piece_bytes() const { return direct_ ? kDirectPiece : kEnginePiece; }

  static constexpr std::uint64_t kDirectPiece = 128 * 1024;
  static constexpr std::uint64_t kEnginePiece = 2 * 1024 * 1024;

 private:
  // Read ahead while the caller works on the piece before.
  struct Stage;
  PeerData(const Communicator& group, std::uint32_t peer, const BufferRef& ref, Deadline deadline)
      : group_(&group), peer_(peer), ref_(ref), deadline_(deadline) {}
  Result<void> start(std::size_t which, std::uint64_t offset, std::uint64_t nbytes);
  Result<void> finish(std::size_t which);

  const Communicator* group_;
  std::uint32_t peer_;
  BufferRef ref_;
  Deadline deadline_;
  const std::byte* direct_ = nullptr;
  std::shared_ptr<FileView> view_;
  std::shared_ptr<Stage> stage_;
};

}  // namespace onesided::sim::hccl
