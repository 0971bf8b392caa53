#include "routing.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace onesided::torch_npu {

void Routing::begin(c10::DeviceIndex device, Entry entry) {
  const std::unique_lock lock(mutex_);
  if (entry.pool) aligned_.fetch_add(1, std::memory_order_relaxed);
  entries_[device].push_back(std::move(entry));
}

bool Routing::end(c10::DeviceIndex device, PoolId id) {
  const std::unique_lock lock(mutex_);
  std::vector<Entry>& entries = entries_[device];
  const auto with_id = [&](const Entry& entry) { return entry.id == id; };
  const auto of_this_thread = [&](const Entry& entry) {
    return entry.id == id && entry.begun_by == std::this_thread::get_id();
  };
  auto found = std::find_if(entries.rbegin(), entries.rend(), of_this_thread);
  if (found == entries.rend()) found = std::find_if(entries.rbegin(), entries.rend(), with_id);
  // Begun before the decorator was installed: only the native allocator has the entry.
  if (found == entries.rend()) return false;
  const bool captures = found->captures;
  if (found->pool) aligned_.fetch_sub(1, std::memory_order_relaxed);
  entries.erase(std::next(found).base());
  return captures;
}

std::optional<ChosenPool> Routing::lookup(c10::DeviceIndex device, aclrtStream stream) {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(device);
  if (found == entries_.end()) return std::nullopt;
  for (auto entry = found->second.rbegin(); entry != found->second.rend(); ++entry) {
    if (entry->filter(stream)) return ChosenPool(entry->pool);
  }
  return std::nullopt;
}

}  // namespace onesided::torch_npu
