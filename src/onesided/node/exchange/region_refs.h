// Registering memory is slow and regions must not overlap, while objects come and go by the hundred, share
// storages and overlap. Here a range is registered once, counted by those who use it, and kept registered after the
// last use for as long as the memory itself lives: the hundredth publication of the same weights registers nothing.
//
// What an entry is keyed by: not its address, but a registration of this engine. An entry ends when its memory ends
// (memory_gone) or, without a known owner, with its last user; the next memory at that address gets a registration, and
// so a region generation, of its own.
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

// Names one memory (a storage, a native segment) for its whole life; no two memories ever have the same number. Nobody
// tells us when kUnowned memory ends: its registration ends with its last user.
using MemoryId = std::uint64_t;
inline constexpr MemoryId kUnowned = 0;

// The bytes of a tensor, and the memory they are part of, which is what gets registered. A value.
struct TensorSpan {
  MemRange bytes;
  MemRange whole;
  MemoryId memory = kUnowned;
};

// Registrations of one engine. Internally synchronized; calls the engine without holding its lock. The engine must
// outlive it. Registrations that are left end with the engine.
class RegionRefs {
 public:
  using RegionId = std::uint64_t;

  // The pieces that cover a range, in order, and the registrations held for it (none where another party, such as a
  // pool, has registered the memory and answers for its life). Give it back with drop(), once.
  struct Held {
    std::vector<MemRange> pieces;
    std::vector<RegionId> regions;
  };
  struct Counts {
    std::uint64_t registrations = 0;    // ever made
    std::uint64_t deregistrations = 0;  // ever ended
    std::uint64_t regions = 0;          // now
    std::uint64_t nbytes = 0;           // now
  };

  // With keep_idle false, a registration ends with its last user even if its memory lives on.
  explicit RegionRefs(EnginePort& engine, bool keep_idle = true) : engine_(engine), keep_idle_(keep_idle) {}
  RegionRefs(const RegionRefs&) = delete;
  RegionRefs& operator=(const RegionRefs&) = delete;

  // Makes sure that span.bytes (inside span.whole, > 0 bytes) are registered, as a whole memory where that is not yet
  // so, and holds it. An error (of the engine's register_mem, with the range) holds nothing. May block on another
  // thread's registration of the same memory.
  Result<Held> hold(const TensorSpan& span);
  void drop(const Held& held);

  // The memory's owner frees it now: its registrations end before this returns, used or not. Readers that come later
  // are refused as STALE. A reader that is frozen in the middle holds this up for 10 s; its registration is ended when
  // the addresses are used again.
  void memory_gone(MemoryId memory);

  Counts counts() const;

 private:
  enum class State : std::uint8_t { kRegistering, kLive, kLeaving };
  struct Region {
    MemRange range;
    RegionId id = 0;
    State state = State::kRegistering;
    std::uint64_t handle = 0;     // the engine's, once live
    std::uint64_t users = 0;      // Held that name it
    std::set<MemoryId> memories;  // whose life it follows: it ends with the last of them
  };
  using ByAddress = std::map<std::uint64_t, Region>;

  // The entries that overlap the range, in order, all live; waits for those that are on their way in or out.
  std::vector<ByAddress::iterator> settled(const MemRange& range, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  // These three let go of the lock while the engine works; entries may have come and gone when they return.
  Result<void> fill(const TensorSpan& span, std::vector<MemRange>& foreign, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  Result<void> add(const MemRange& range, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  void remove(ByAddress::iterator region, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  void remove_unclaimed(const MemRange& range, MutexLock& lock) ONESIDED_REQUIRES(mutex_);
  // Ends registrations of memory that has gone while a reader did not let go of it, where they are in the way.
  void end_stuck(const MemRange& range, MutexLock& lock) ONESIDED_REQUIRES(mutex_);

  EnginePort& engine_;
  const bool keep_idle_;

  mutable Mutex mutex_;
  CondVar changed_;
  ByAddress regions_ ONESIDED_GUARDED_BY(mutex_);
  std::unordered_map<RegionId, std::uint64_t> address_of_ ONESIDED_GUARDED_BY(mutex_);
  std::unordered_map<MemoryId, std::set<RegionId>> regions_of_ ONESIDED_GUARDED_BY(mutex_);
  // Registrations whose memory has gone and that the engine could not end in time (a frozen reader).
  std::vector<std::pair<MemRange, std::uint64_t>> stuck_ ONESIDED_GUARDED_BY(mutex_);
  RegionId next_id_ ONESIDED_GUARDED_BY(mutex_) = 1;
  std::uint64_t changes_ ONESIDED_GUARDED_BY(mutex_) = 0;  // of regions_
  Counts counts_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
