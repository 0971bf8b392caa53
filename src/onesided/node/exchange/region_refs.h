// Reference-counted registrations. Registering memory is slow and regions must not overlap, but objects are published
// and freed by the hundred, share storages and overlap. A range is registered once, its users are counted, and it stays
// registered after the last use until its memory is freed: the hundredth publication of the same weights registers
// nothing.
//
// The key of an entry is not its address but a registration of this engine. An entry ends when its memory is freed
// (memory_freed) or, without a known owner, with its last user; the next memory at that address gets a new registration
// and therefore a new region generation.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/node/exchange/engine_port.h"

namespace onesided {

// Identifies one memory (a storage, a native segment) from its allocation to its end; no two memories ever have the
// same number. The end of kUnowned memory is not reported, so its registration ends with its last user.
using MemoryId = std::uint64_t;
inline constexpr MemoryId kUnowned = 0;

// The bytes of a tensor, and the memory that contains them; that memory is registered. A value.
struct TensorSpan {
  MemRange bytes;
  MemRange whole;
  MemoryId memory = kUnowned;
};

// Registrations of one engine. Internally synchronized; calls the engine without holding its lock. The engine must
// outlive it. Remaining registrations end with the engine.
class RegionRefs {
 public:
  using RegionId = std::uint64_t;

  // The pieces that cover a range, in order, and the registrations held for it (none if other code, such as a pool, has
  // registered the memory and ensures its lifetime). Must be released once with drop().
  struct Held {
    std::vector<MemRange> pieces;
    std::vector<RegionId> regions;
  };
  struct Counts {
    std::uint64_t registrations = 0;    // made in total
    std::uint64_t deregistrations = 0;  // ended in total
    std::uint64_t regions = 0;          // current
    std::uint64_t nbytes = 0;           // current
  };

  // With keep_idle false, a registration ends with its last user even if its memory is not freed.
  explicit RegionRefs(EnginePort& engine, bool keep_idle = true) : engine_(engine), keep_idle_(keep_idle) {}
  RegionRefs(const RegionRefs&) = delete;
  RegionRefs& operator=(const RegionRefs&) = delete;

  // Registers span.whole, unless span.bytes (inside it, > 0 bytes) are registered already, and holds the registration.
  // After an error (of the engine's register_mem, with the range) nothing is held. May block on another thread's
  // registration of the same memory.
  Result<Held> hold(const TensorSpan& span);
  void drop(const Held& held);

  // To be called when the memory's owner frees it: its registrations end before this returns, used or not. Later
  // readers get STALE. A reader that is suspended during a read delays this by 10 s; then the registration is ended
  // when the addresses are used again.
  void memory_freed(MemoryId memory);

  Counts counts() const;

 private:
  enum class State : std::uint8_t { kRegistering, kLive, kLeaving };
  struct Region {
    MemRange range;
    RegionId id = 0;
    State state = State::kRegistering;
    std::uint64_t handle = 0;     // the engine's, once live
    std::uint64_t users = 0;      // number of Held objects that use it
    std::set<MemoryId> memories;  // it ends when the last of them is freed
  };
  using ByAddress = std::map<std::uint64_t, Region>;

  // The entries that overlap the range, in order, all live; waits for entries that are being added or removed.
  std::vector<ByAddress::iterator> settled(const MemRange& range, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  // These three release the lock during calls of the engine; entries may have changed when they return.
  Result<void> fill(const TensorSpan& span, std::vector<MemRange>& foreign, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  Result<void> add(const MemRange& range, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  void remove(ByAddress::iterator region, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  void remove_unclaimed(const MemRange& range, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  // Ends registrations of freed memory that overlap the range and could not be ended before because of a reader.
  void end_stuck(const MemRange& range, MutexLock& lock) ONESIDED_REQUIRES(mutex_);

  EnginePort& engine_;
  const bool keep_idle_;

  mutable Mutex mutex_;
  CondVar changed_;
  ByAddress regions_ ONESIDED_GUARDED_BY(mutex_);
  std::unordered_map<RegionId, std::uint64_t> address_of_ ONESIDED_GUARDED_BY(mutex_);
  std::unordered_map<MemoryId, std::set<RegionId>> regions_of_ ONESIDED_GUARDED_BY(mutex_);
  // Registrations of freed memory that were not ended within the time limit, because a reader is suspended.
  std::vector<std::pair<MemRange, std::uint64_t>> stuck_ ONESIDED_GUARDED_BY(mutex_);
  RegionId next_id_ ONESIDED_GUARDED_BY(mutex_) = 1;
  std::uint64_t changes_ ONESIDED_GUARDED_BY(mutex_) = 0;  // of regions_
  Counts counts_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
