// Segment and Block, the pool's internal types. Code outside this module uses addresses and SegmentInfo.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "onesided/device/device.h"

namespace onesided {

struct Segment;

enum class BlockState : std::uint8_t {
  kFree,       // in a free list
  kAllocated,  // a caller holds the address
  kPending,    // freed, but streams other than its own may still work on it
};

// A piece of a segment. Guarded by its pool's mutex.
struct Block {
  Segment* segment = nullptr;
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;           // charged; a multiple of the pool's alignment
  std::uint64_t requested_bytes = 0;  // as requested, 0 while free
  BlockState state = BlockState::kFree;
  Block* left = nullptr;  // neighbours by address within the segment
  Block* right = nullptr;
  Block* list_previous = nullptr;  // within a free list
  Block* list_next = nullptr;
  std::vector<Stream> used_on;          // streams recorded in addition to the segment's own
  std::shared_ptr<const void> context;  // data of the allocating side, shown in snapshots
};

enum class SegmentState : std::uint8_t {
  kAnnouncing,  // listeners are being notified; no block can be taken yet
  kLive,
  kDropping,  // listeners are being notified of its end; no block can be taken any more
  kStuck,     // a listener still uses it; the next trim asks again
};

// Raw memory from a source. The blocks cover [begin, end); the skipped prefix and the tail are numbers, not blocks, so
// that one comparison tells whether a segment is completely free. Guarded by its pool's mutex.
struct Segment {
  void* raw_base = nullptr;  // as allocated by the source, and as freed
  std::uint64_t raw_bytes = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  Stream stream;
  SegmentState state = SegmentState::kAnnouncing;
  bool fresh = false;               // preallocated and never used: the first requesting stream gets it
  int pins = 0;                     // subscribers being notified of it: cannot be dropped
  std::uint64_t blocks_in_use = 0;  // allocated or pending
  std::uint64_t free_blocks = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t last_used = 0;  // value of the pool's clock when a block was last taken
  Block* first = nullptr;
  std::vector<Block*> at;  // by (address - begin) / alignment, where an allocated block starts
  std::shared_ptr<const void> context;

  std::uint64_t usable_bytes() const { return end - begin; }
  std::uint64_t overhead_bytes() const { return raw_bytes - usable_bytes(); }
};

}  // namespace onesided
