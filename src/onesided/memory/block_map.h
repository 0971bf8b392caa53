// The geometry of a pool: its segments, how they are split into blocks, and how free blocks are merged. Has no events,
// statistics or locks, so that a test can exercise every split.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "onesided/memory/block.h"
#include "onesided/memory/free_list.h"

namespace onesided {

// Owns the descriptions of segments and blocks, not the memory. Guarded by the pool's mutex.
class BlockMap {
 public:
  // alignment: power of two. no_split: a segment is always one block.
  BlockMap(std::uint64_t alignment, bool no_split) : alignment_(alignment), no_split_(no_split) {}
  ~BlockMap();
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;

  // Length of the aligned part of [base, base + raw_bytes) that leaves guard_bytes behind it; 0 if nothing is left.
  static std::uint64_t usable_bytes(std::uint64_t base, std::uint64_t raw_bytes, std::uint64_t guard_bytes,
                                    std::uint64_t alignment);

  // Adds raw memory in state kAnnouncing. Its usable part must not be empty and must not overlap another segment.
  Segment* add(void* raw_base, std::uint64_t raw_bytes, std::uint64_t guard_bytes, Stream stream);
  // kAnnouncing -> kLive: one free block that covers the whole segment. `fresh`: it belongs to no stream yet.
  void publish(Segment* segment, bool fresh = false);
  // kLive or kStuck -> kDropping. The segment must be idle.
  void withdraw(Segment* segment);
  // Removes a segment that was withdrawn, or never published.
  void erase(Segment* segment);

  // A block of exactly nbytes (a multiple of the alignment) of the stream's segments, now kAllocated, or null.
  Block* take(std::uint64_t nbytes, Stream stream);
  // kAllocated or kPending -> kFree, merged with free neighbours.
  void give_back(Block* block);

  // The allocated block that starts at the address, or null.
  Block* find_allocated(const void* address) const;
  // The segment whose blocks' range contains the address, or null.
  Segment* find_segment(const void* address) const;

  const std::vector<Segment*>& segments() const { return by_address_; }
  static bool idle(const Segment& segment) {
    return segment.state == SegmentState::kLive && segment.blocks_in_use == 0 && segment.pins == 0;
  }
  // True if the segment can be dropped: idle or stuck, and no subscriber is being notified of it.
  static bool droppable(const Segment& segment) {
    return idle(segment) || (segment.state == SegmentState::kStuck && segment.pins == 0);
  }

 private:
  FreeList& list_of(Stream stream);
  // Assigns a preallocated, large enough segment that no stream has used to this stream.
  bool adopt_fresh(std::uint64_t nbytes, Stream stream);
  Block* new_block(Segment* segment, std::uint64_t address, std::uint64_t nbytes);
  void recycle(Block* block);
  // Merges the free block with its right neighbour, which is free and no longer in a list.
  void absorb_right(Block* block);

  const std::uint64_t alignment_;
  const bool no_split_;
  std::vector<Segment*> by_address_;  // owned, sorted by begin
  std::map<Stream, FreeList> free_lists_;
  std::vector<std::unique_ptr<Block>> block_storage_;
  std::vector<Block*> spare_blocks_;
  std::uint64_t clock_ = 0;
};

}  // namespace onesided
