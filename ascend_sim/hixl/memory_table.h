// What may be registered, and under which handle, follows the vendor's rules and not our engine's: the same range
// twice is one handle, neighbours are separate, an unknown handle may be deregistered. This table knows those rules and
// nothing of transfers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/device/device.h"

namespace onesided::hixl_abi {

// A registered range as others see it. A value.
struct Segment {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  MemType type = MemType::kHost;
  friend auto operator<=>(const Segment&, const Segment&) = default;
};

// Registered ranges by type, for finding and splitting. Ranges of one type never overlap; they may touch. A value.
class SegmentSet {
 public:
  // Replaces nothing: the caller has checked that it overlaps none of its type.
  void insert(const Segment& segment);
  void erase(const Segment& segment);
  // The one registered with exactly these bounds.
  bool contains(const Segment& segment) const;
  bool overlaps(const Segment& segment) const;
  // How many bytes from `address` on lie in one segment, at most `nbytes`; 0 when none holds it.
  std::uint64_t run(std::uint64_t address, std::uint64_t nbytes) const;
  // Every byte of the range is registered, perhaps in several neighbours.
  bool covers(std::uint64_t address, std::uint64_t nbytes) const;
  std::vector<Segment> all() const;
  std::size_t size() const { return by_type_[0].size() + by_type_[1].size(); }

 private:
  using Ranges = std::map<std::uint64_t, std::uint64_t>;  // start -> length
  Ranges by_type_[2];
};

// Registered memory of one engine and its handles. Internally synchronized.
class MemoryTable {
 public:
  using Handle = std::uint64_t;  // never 0, never used twice

  struct Added {
    Handle handle = 0;
    bool fresh = false;  // false: registered before, now counted once more
  };
  struct Removed {
    Segment segment;
    bool last = false;  // the count fell to zero; the handle is gone
  };

  // PARAM_INVALID: null, no length, an end beyond 2^64, or an overlap with another range of the same type.
  Result<Added> add(const Segment& segment);
  // Nothing: no such handle.
  std::optional<Removed> remove(Handle handle);
  // What is registered now; shared until the next change.
  std::shared_ptr<const SegmentSet> snapshot() const;

 private:
  struct Entry {
    Segment segment;
    std::uint32_t uses = 0;
  };

  mutable Mutex mutex_;
  std::map<Handle, Entry> entries_ ONESIDED_GUARDED_BY(mutex_);
  std::map<Segment, Handle> handles_ ONESIDED_GUARDED_BY(mutex_);
  SegmentSet segments_ ONESIDED_GUARDED_BY(mutex_);
  mutable std::shared_ptr<const SegmentSet> shared_ ONESIDED_GUARDED_BY(mutex_);  // null after a change
  Handle next_ ONESIDED_GUARDED_BY(mutex_) = 1;
};

}  // namespace onesided::hixl_abi
