#include "onesided/memory/block_map.h"

#include <algorithm>

#include "onesided/base/align.h"
#include "onesided/base/check.h"

namespace onesided {

BlockMap::~BlockMap() {
  for (Segment* segment : by_address_) delete segment;
}

std::uint64_t BlockMap::usable_bytes(std::uint64_t base, std::uint64_t raw_bytes, std::uint64_t guard_bytes,
                                     std::uint64_t alignment) {
  if (guard_bytes >= raw_bytes) return 0;
  const auto begin = align_up(base, alignment);
  const std::uint64_t end = align_down(base + raw_bytes - guard_bytes, alignment);
  return begin && *begin < end ? end - *begin : 0;
}

Segment* BlockMap::add(void* raw_base, std::uint64_t raw_bytes, std::uint64_t guard_bytes, Stream stream) {
  const auto base = reinterpret_cast<std::uintptr_t>(raw_base);
  const std::uint64_t usable = usable_bytes(base, raw_bytes, guard_bytes, alignment_);
  ONESIDED_CHECK(usable > 0, "segment {} of {} bytes holds no block of {}", raw_base, raw_bytes, alignment_);
  auto segment = std::make_unique<Segment>();
  segment->raw_base = raw_base;
  segment->raw_bytes = raw_bytes;
  segment->begin = *align_up(base, alignment_);
  segment->end = segment->begin + usable;
  segment->stream = stream;
  segment->at.resize(no_split_ ? 1 : usable / alignment_);
  const auto place = std::lower_bound(by_address_.begin(), by_address_.end(), segment->begin,
                                      [](const Segment* s, std::uint64_t address) { return s->begin < address; });
  ONESIDED_CHECK(place == by_address_.end() || (*place)->begin >= segment->end, "segments overlap at {}", raw_base);
  ONESIDED_CHECK(place == by_address_.begin() || (*(place - 1))->end <= segment->begin, "segments overlap at {}",
                 raw_base);
  return *by_address_.insert(place, segment.release());
}

void BlockMap::publish(Segment* segment, bool fresh) {
  segment->fresh = fresh;
  segment->state = SegmentState::kLive;
  segment->first = new_block(segment, segment->begin, segment->usable_bytes());
  segment->free_blocks = 1;
  segment->free_bytes = segment->usable_bytes();
  list_of(segment->stream).insert(segment->first);
}

void BlockMap::withdraw(Segment* segment) {
  if (segment->state == SegmentState::kStuck) {
    segment->state = SegmentState::kDropping;
    return;
  }
  ONESIDED_CHECK(idle(*segment) && segment->first && !segment->first->right, "segment {} is in use: {} blocks",
                 segment->raw_base, segment->blocks_in_use);
  list_of(segment->stream).erase(segment->first);
  recycle(segment->first);
  segment->first = nullptr;
  segment->state = SegmentState::kDropping;
}

void BlockMap::erase(Segment* segment) {
  ONESIDED_CHECK(segment->state != SegmentState::kLive, "segment {} was not withdrawn", segment->raw_base);
  const Stream stream = segment->stream;
  by_address_.erase(std::find(by_address_.begin(), by_address_.end(), segment));
  delete segment;
  // Some programs create and destroy thousands of streams, so a list without segments is removed.
  const auto list = free_lists_.find(stream);
  if (list != free_lists_.end() && list->second.empty() &&
      std::none_of(by_address_.begin(), by_address_.end(), [&](const Segment* s) { return s->stream == stream; })) {
    free_lists_.erase(list);
  }
}

Block* BlockMap::take(std::uint64_t nbytes, Stream stream) {
  auto list = free_lists_.find(stream);
  Block* block = list == free_lists_.end() ? nullptr : list->second.find(nbytes, no_split_);
  if (!block) {
    if (!adopt_fresh(nbytes, stream)) return nullptr;
    list = free_lists_.find(stream);
    block = list->second.find(nbytes, no_split_);
  }
  list->second.erase(block);
  Segment* segment = block->segment;
  if (block->nbytes > nbytes) {
    Block* rest = new_block(segment, block->address + nbytes, block->nbytes - nbytes);
    block->nbytes = nbytes;
    rest->left = block;
    rest->right = block->right;
    if (rest->right) rest->right->left = rest;
    block->right = rest;
    list->second.insert(rest);
  } else {
    --segment->free_blocks;
  }
  segment->free_bytes -= nbytes;
  block->state = BlockState::kAllocated;
  segment->at[(block->address - segment->begin) / alignment_] = block;
  ++segment->blocks_in_use;
  segment->last_used = ++clock_;
  segment->fresh = false;
  return block;
}

bool BlockMap::adopt_fresh(std::uint64_t nbytes, Stream stream) {
  for (Segment* segment : by_address_) {
    const bool fits = no_split_ ? segment->usable_bytes() == nbytes : segment->usable_bytes() >= nbytes;
    if (!segment->fresh || segment->state != SegmentState::kLive || !fits) continue;
    list_of(segment->stream).erase(segment->first);
    segment->stream = stream;
    list_of(stream).insert(segment->first);
    return true;
  }
  return false;
}

void BlockMap::give_back(Block* block) {
  Segment* segment = block->segment;
  ONESIDED_CHECK(block->state != BlockState::kFree && segment->blocks_in_use > 0, "block {:#x} is free already",
                 block->address);
  segment->at[(block->address - segment->begin) / alignment_] = nullptr;
  --segment->blocks_in_use;
  block->state = BlockState::kFree;
  block->requested_bytes = 0;
  block->context.reset();
  block->used_on.clear();
  ++segment->free_blocks;
  segment->free_bytes += block->nbytes;
  FreeList& list = list_of(segment->stream);
  if (block->right && block->right->state == BlockState::kFree) {
    list.erase(block->right);
    absorb_right(block);
  }
  if (Block* left = block->left; left && left->state == BlockState::kFree) {
    list.erase(left);
    absorb_right(left);
    block = left;
  }
  list.insert(block);
}

Block* BlockMap::find_allocated(const void* address) const {
  const Segment* segment = find_segment(address);
  if (!segment) return nullptr;
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(address) - segment->begin;
  if (!is_aligned(offset, alignment_) || offset / alignment_ >= segment->at.size()) return nullptr;
  Block* block = segment->at[offset / alignment_];
  return block && block->state == BlockState::kAllocated ? block : nullptr;
}

Segment* BlockMap::find_segment(const void* address) const {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  auto after = std::upper_bound(by_address_.begin(), by_address_.end(), wanted,
                                [](std::uint64_t value, const Segment* s) { return value < s->begin; });
  if (after == by_address_.begin()) return nullptr;
  Segment* segment = *(after - 1);
  return wanted < segment->end ? segment : nullptr;
}

FreeList& BlockMap::list_of(Stream stream) { return free_lists_.try_emplace(stream, alignment_).first->second; }

Block* BlockMap::new_block(Segment* segment, std::uint64_t address, std::uint64_t nbytes) {
  Block* block = nullptr;
  if (spare_blocks_.empty()) {
    block = block_storage_.emplace_back(std::make_unique<Block>()).get();
  } else {
    block = spare_blocks_.back();
    spare_blocks_.pop_back();
  }
  block->segment = segment;
  block->address = address;
  block->nbytes = nbytes;
  block->state = BlockState::kFree;
  block->left = block->right = nullptr;
  return block;
}

void BlockMap::recycle(Block* block) { spare_blocks_.push_back(block); }

void BlockMap::absorb_right(Block* block) {
  Block* gone = block->right;
  block->nbytes += gone->nbytes;
  block->right = gone->right;
  if (block->right) block->right->left = block;
  --block->segment->free_blocks;
  recycle(gone);
}

}  // namespace onesided
