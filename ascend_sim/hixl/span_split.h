// One item of a vendor-style program may run across neighbouring registrations on either side; our engine wants
// each item inside one region on each. The items are cut here, and those that cannot be are told apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory_table.h"
#include "onesided/base/result.h"
#include "onesided/engine/transfer.h"

namespace onesided::hixl_abi {

// One copy a program asks for.
using Item = TransferItem;

// A value.
struct SplitItems {
  std::vector<Item> direct;  // each within one segment on both sides, in the order given
  std::vector<Item> staged;  // whole items with bytes that are not registered on one side or both
};

// PARAM_INVALID: an empty list, a null address, a length of 0 or an end beyond 2^64.
Result<SplitItems> split_items(std::span<const Item> items, const SegmentSet& local, const SegmentSet& remote);

}  // namespace onesided::hixl_abi
