#include "registered_memory.h"

#include <fmt/format.h>

namespace onesided::hixl_abi {

namespace {

constexpr std::int64_t kDrainMs = 10'000;

}  // namespace

Result<MemoryTable::Handle> RegisteredMemory::add(const Segment& segment) {
  MutexLock lock(order_);
  ONESIDED_TRY_ASSIGN(added, table_.add(segment));
  if (!added.fresh) return added.handle;
  auto registered = engine_.register_mem(segment.address, segment.nbytes, segment.type);
  if (registered) {
    registered_.emplace(added.handle, *registered);
  } else if (registered.status() != Status::kMisaligned) {
    table_.remove(added.handle);
    return registered.error();
  }
  return added.handle;
}

Result<void> RegisteredMemory::remove(MemoryTable::Handle handle) {
  MutexLock lock(order_);
  const auto removed = table_.remove(handle);
  if (!removed || !removed->last) return {};
  shareable_.erase(removed->segment);
  const auto found = registered_.find(handle);
  if (found == registered_.end()) return {};
  const MemHandle registered = found->second;
  registered_.erase(found);
  return engine_.deregister_mem(registered, kDrainMs);
}

Result<void> RegisteredMemory::check_shareable() {
  MutexLock lock(order_);
  const auto segments = table_.snapshot();
  for (const Segment& segment : segments->all()) {
    if (segment.type != MemType::kDevice || shareable_.contains(segment)) continue;
    ONESIDED_TRY(driver_.check_shareable(segment));
    shareable_.insert(segment);
  }
  return {};
}

std::shared_ptr<const SegmentSet> RegisteredMemory::snapshot() const { return table_.snapshot(); }

}  // namespace onesided::hixl_abi
