// What one rank shows the others: which operation it is in, where its data lies, how far it has come. A page is a
// memfd that the other ranks of this host map; of a rank on another host there is a copy, kept current by messages. The
// collectives read pages and do not know the difference.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace onesided::sim::hccl {

// Data up to this length is put on the page itself: peers read it there, and the operation does not wait for them.
inline constexpr std::uint64_t kInlineBytes = 32 * 1024;
inline constexpr std::uint64_t kSendInlineBytes = 4 * 1024;

// Where a rank's data lies. A value of plain words.
struct BufferRef {
  std::uint64_t address = 0;  // in the owner
  std::uint64_t nbytes = 0;
  std::int32_t file = -1;     // descriptor in the owner, when all of it lies in one file
  std::uint32_t on_page = 0;  // 1: it is on the page
  std::uint64_t inode = 0;
  std::uint64_t file_offset = 0;  // of `address`
};

enum class OpKind : std::uint32_t {
  kNone = 0,
  kBarrier,
  kBroadcast,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kScatter,
  kAllToAll,
  kSend,
};

// What all ranks must agree on. A value of plain words.
struct Signature {
  OpKind kind = OpKind::kNone;
  std::int32_t data_type = 0;
  std::int32_t reduce = 0;
  std::uint32_t root = 0;
  std::uint64_t count = 0;  // of each rank; 0 where ranks may differ
  friend bool operator==(const Signature&, const Signature&) = default;
};

// One operation of one rank. A value of plain words.
struct OpRecord {
  Signature signature;
  BufferRef source;
  BufferRef result;  // of an all-reduce: what others gather from
};

// Which part of a rank's source another rank takes. Bytes.
struct Part {
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
};

enum class PageState : std::uint32_t { kJoining = 0, kJoined = 1, kClosed = 2 };

// The words at the start of a page. Written by its rank only, `sleepers` by all.
struct PageHead {
  std::uint64_t instance;  // of the communicator
  std::uint32_t rank;
  std::uint32_t ranks;
  std::atomic<std::uint32_t> beat;       // changes with every change of the page: what waiting ranks sleep on
  std::atomic<std::uint32_t> sleepers;   // how many sleep on it
  std::atomic<std::uint32_t> state;      // PageState
  std::atomic<std::int32_t> failure;     // Code; not 0: the rank has given up
  std::atomic<std::uint64_t> published;  // number of its latest operation
  std::atomic<std::uint64_t> finished;  // number of the latest operation for which it no longer reads other ranks' data
};

// Two of them, used in turn: a rank publishes operation n once all others have finished n - 2.
struct SlotHead {
  OpRecord record;
  std::atomic<std::uint64_t> progress;  // bytes of its slice that an all-reduce has reduced
};

// What one rank sends to one other.
struct PairHead {
  std::atomic<std::uint64_t> sent;  // number of the latest send to that rank
  OpRecord record;
  std::atomic<std::uint64_t> received;  // number of the latest send of that rank that was taken
  std::atomic<std::uint32_t> refused;   // 1: the latest one did not fit what was expected
};

// A view of a page. A value; the memory outlives it.
class RankPage {
 public:
  RankPage() = default;
  RankPage(std::byte* base, std::uint32_t ranks) : base_(base), ranks_(ranks) {}

  static std::uint64_t bytes(std::uint32_t ranks) { return pairs_at(ranks) + ranks * pair_bytes(); }

  PageHead& head() const { return *reinterpret_cast<PageHead*>(base_); }
  SlotHead& slot(std::uint64_t op) const { return *reinterpret_cast<SlotHead*>(base_ + slot_at(op)); }
  std::span<Part> parts(std::uint64_t op) const {
    return {reinterpret_cast<Part*>(base_ + slot_at(op) + kSlotHead), ranks_};
  }
  std::byte* payload(std::uint64_t op) const { return base_ + slot_at(op) + kSlotHead + parts_bytes(ranks_); }
  PairHead& pair(std::uint32_t peer) const { return *reinterpret_cast<PairHead*>(base_ + pair_at(peer)); }
  std::byte* pair_payload(std::uint32_t peer) const { return base_ + pair_at(peer) + kPairHead; }

 private:
  static constexpr std::uint64_t kLine = 64;
  static constexpr std::uint64_t round_up(std::uint64_t nbytes) { return (nbytes + kLine - 1) / kLine * kLine; }
  static constexpr std::uint64_t kHead = (sizeof(PageHead) + kLine - 1) / kLine * kLine;
  static constexpr std::uint64_t kSlotHead = (sizeof(SlotHead) + kLine - 1) / kLine * kLine;
  static constexpr std::uint64_t kPairHead = (sizeof(PairHead) + kLine - 1) / kLine * kLine;

  static std::uint64_t parts_bytes(std::uint32_t ranks) { return round_up(ranks * sizeof(Part)); }
  static std::uint64_t slot_bytes(std::uint32_t ranks) { return kSlotHead + parts_bytes(ranks) + kInlineBytes; }
  static std::uint64_t pair_bytes() { return kPairHead + kSendInlineBytes; }
  static std::uint64_t pairs_at(std::uint32_t ranks) { return kHead + 2 * slot_bytes(ranks); }
  std::uint64_t slot_at(std::uint64_t op) const { return kHead + op % 2 * slot_bytes(ranks_); }
  std::uint64_t pair_at(std::uint32_t peer) const { return pairs_at(ranks_) + peer * pair_bytes(); }

  std::byte* base_ = nullptr;
  std::uint32_t ranks_ = 0;
};

}  // namespace onesided::sim::hccl
