// The history of a pool's events, for PyTorch's memory visualiser and for the search for leaks. Off by default; then it
// costs one comparison.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "onesided/device/device.h"

namespace onesided {

enum class PoolAction : std::uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,  // later than requested if another stream still worked on the block
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,  // address: the device's free bytes
};

struct PoolEvent {
  PoolAction action = PoolAction::kAlloc;
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  Stream stream;
  std::shared_ptr<const void> context;
};

// The last max_entries events. Guarded by the pool's mutex.
class History {
 public:
  // Keeps at most max_entries events; 0 turns the history off and deletes it.
  void keep(std::size_t max_entries) {
    max_entries_ = max_entries;
    trim();
  }
  bool on() const { return max_entries_ != 0; }
  void add(PoolEvent event) {
    if (!on()) return;
    events_.push_back(std::move(event));
    trim();
  }
  std::vector<PoolEvent> events() const { return {events_.begin(), events_.end()}; }

 private:
  void trim() {
    while (events_.size() > max_entries_) events_.pop_front();
  }

  std::size_t max_entries_ = 0;
  std::deque<PoolEvent> events_;
};

}  // namespace onesided
