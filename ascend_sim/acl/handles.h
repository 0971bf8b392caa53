// A program may hand back a handle that was destroyed, or never was one. Handles are numbers that never repeat,
// looked up here; a bad one is an error, not a crash.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "onesided/base/mutex.h"

namespace onesided::sim {

// Maps opaque handles to objects. Internally synchronized. `Tag` keeps the handles of different tables apart.
template <typename T, std::uint64_t Tag>
class HandleTable {
 public:
  void* add(std::shared_ptr<T> object) {
    const std::uint64_t value = (Tag << 48) | (next_.fetch_add(1, std::memory_order_relaxed) << 4);
    void* handle = reinterpret_cast<void*>(value);
    MutexLock lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  // Null when there is no such handle.
  std::shared_ptr<T> find(const void* handle) const {
    MutexLock lock(mutex_);
    const auto at = objects_.find(const_cast<void*>(handle));
    return at == objects_.end() ? nullptr : at->second;
  }
  std::shared_ptr<T> remove(const void* handle) {
    MutexLock lock(mutex_);
    const auto at = objects_.find(const_cast<void*>(handle));
    if (at == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(at->second);
    objects_.erase(at);
    return object;
  }
  std::vector<std::shared_ptr<T>> all() const {
    MutexLock lock(mutex_);
    std::vector<std::shared_ptr<T>> objects;
    objects.reserve(objects_.size());
    for (const auto& [handle, object] : objects_) objects.push_back(object);
    return objects;
  }

 private:
  std::atomic<std::uint64_t> next_{1};
  mutable Mutex mutex_;
  std::unordered_map<void*, std::shared_ptr<T>> objects_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided::sim
