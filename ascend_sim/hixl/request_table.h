// A vendor-style program asks for a request's state through an opaque handle until it hears an end, and never
// again; whoever asks again gets PARAM_INVALID. The record dies with that answer, so that nothing piles up.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "onesided/base/mutex.h"

namespace onesided::hixl_abi {

// Handles for requests of type T. Internally synchronized. Handles are numbers, never pointers: a made-up or old one is
// simply not found.
template <typename T>
class RequestTable {
 public:
  using Handle = std::uint64_t;  // never 0, never used twice

  Handle add(std::shared_ptr<T> request) {
    MutexLock lock(mutex_);
    const Handle handle = next_++;
    requests_.emplace(handle, std::move(request));
    return handle;
  }

  // Null: no such request, or its end has been told.
  std::shared_ptr<T> find(Handle handle) const {
    MutexLock lock(mutex_);
    const auto found = requests_.find(handle);
    return found == requests_.end() ? nullptr : found->second;
  }

  // True for exactly one caller per request: the one that may tell its end.
  bool retire(Handle handle) {
    std::shared_ptr<T> last;  // destroyed after the lock is gone
    MutexLock lock(mutex_);
    const auto found = requests_.find(handle);
    if (found == requests_.end()) return false;
    last = std::move(found->second);
    requests_.erase(found);
    return true;
  }

  std::size_t size() const {
    MutexLock lock(mutex_);
    return requests_.size();
  }

 private:
  mutable Mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<T>> requests_ ONESIDED_GUARDED_BY(mutex_);
  Handle next_ ONESIDED_GUARDED_BY(mutex_) = 1;
};

}  // namespace onesided::hixl_abi
