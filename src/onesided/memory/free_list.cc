#include "onesided/memory/free_list.h"

#include <bit>

namespace onesided {

void FreeList::insert(Block* block) {
  const std::uint64_t bin = (block->nbytes >> shift_) - 1;
  if (bin >= kBins) {
    large_.insert(block);
    return;
  }
  block->list_previous = nullptr;
  block->list_next = bins_[bin];
  if (bins_[bin]) bins_[bin]->list_previous = block;
  bins_[bin] = block;
  filled_ |= std::uint64_t{1} << bin;
}

void FreeList::erase(Block* block) {
  const std::uint64_t bin = (block->nbytes >> shift_) - 1;
  if (bin >= kBins) {
    large_.erase(block);
    return;
  }
  if (block->list_next) block->list_next->list_previous = block->list_previous;
  if (block->list_previous) {
    block->list_previous->list_next = block->list_next;
  } else {
    bins_[bin] = block->list_next;
    if (!bins_[bin]) filled_ &= ~(std::uint64_t{1} << bin);
  }
  block->list_previous = block->list_next = nullptr;
}

Block* FreeList::find(std::uint64_t nbytes, bool exact) const {
  const std::uint64_t bin = (nbytes >> shift_) - 1;
  if (bin < kBins) {
    if (exact) return bins_[bin];
    const std::uint64_t candidates = filled_ >> bin;
    if (candidates) return bins_[bin + static_cast<std::uint64_t>(std::countr_zero(candidates))];
  }
  Block wanted;
  wanted.nbytes = nbytes;
  const auto found = large_.lower_bound(&wanted);
  if (found == large_.end() || (exact && (*found)->nbytes != nbytes)) return nullptr;
  return *found;
}

}  // namespace onesided
