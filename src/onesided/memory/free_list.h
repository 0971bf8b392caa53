// Free lists that find the smallest fitting block, fast for frequent sizes. Blocks of few alignment units are in one
// list per size, with a bit mask of non-empty lists; the others are in an ordered set.
#pragma once

#include <array>
#include <cstdint>
#include <set>

#include "onesided/memory/block.h"

namespace onesided {

// Free blocks of one stream. Does not own them. Guarded by its pool's mutex.
class FreeList {
 public:
  explicit FreeList(std::uint64_t alignment) : shift_(std::countr_zero(alignment)) {}

  void insert(Block* block);
  void erase(Block* block);
  // Smallest block of at least nbytes (a multiple of the alignment), or null; among equal sizes the last one freed. It
  // remains in the list. `exact`: only a block of exactly nbytes.
  Block* find(std::uint64_t nbytes, bool exact) const;
  bool empty() const { return filled_ == 0 && large_.empty(); }

 private:
  static constexpr std::uint64_t kBins = 64;  // sizes of 1 .. 64 units

  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->nbytes != b->nbytes ? a->nbytes < b->nbytes : a->address < b->address;
    }
  };

  int shift_;
  std::uint64_t filled_ = 0;  // bit i: bin i has blocks
  std::array<Block*, kBins> bins_{};
  std::set<Block*, BySize> large_;
};

}  // namespace onesided
