// The reader's side of an object. A fetch holds what it needs for as long as bytes may move: its targets'
// registration, its place among the peers, the READ itself; and it ends in one visible state whatever happens to the
// owner, to the caller or to Ray, which may drop a request without ever waiting for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/node/exchange/engine_port.h"
#include "onesided/node/exchange/object_desc.h"
#include "onesided/node/exchange/peer_cache.h"
#include "onesided/node/exchange/region_refs.h"

namespace onesided {

// What to fetch, from where, into what. A value.
struct FetchSpec {
  std::string object_id;
  std::string engine_id;
  std::uint64_t meta_version = 0;
  std::string desc;                 // ObjectDesc, encoded, by the owner's TensorStore
  std::vector<TensorSpan> targets;  // one per tensor, of the same number of bytes; must stay in place while it runs
  std::int64_t connect_timeout_ms = 5000;
  std::optional<std::int64_t> transfer_timeout_ms;  // nothing: no limit
};

enum class FetchState : std::uint8_t { kRunning, kDone, kFailed, kAborted };

// One object on its way. Internally synchronized: one thread may wait while another aborts. Made by Fetches. Destroying
// it aborts what still runs; afterwards the targets are quiet.
class Fetch {
 public:
  ~Fetch();
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  // Blocks until the fetch has ended or the deadline has come (kRunning; it goes on). Ended means: nothing moves any
  // more, and the state never changes again.
  FetchState wait(Deadline deadline);
  // Returns when the targets are quiet. No effect on one that has ended; otherwise it ends as kAborted.
  void abort();

  FetchState state() const;
  // Why it failed or was aborted.
  std::optional<Error> error() const;
  std::uint64_t nbytes() const { return nbytes_; }
  // Wall time from start to end, as the first waiter saw it; 0 while it runs.
  std::uint64_t elapsed_us() const;

 private:
  friend class Fetches;
  Fetch() = default;
  void end(FetchState state, std::optional<Error> error);
  // Posting is bracketed by these two: an abort either comes before it (false: do not post) or waits for it.
  bool begin_posting();
  void end_posting(std::shared_ptr<Reading> reading);
  std::shared_ptr<Reading> reading() const;
  // The peer's connection can not be trusted after this error: the next fetch connects anew.
  static bool breaks_connection(Status status);

  // Fixed before the first call from outside.
  std::string object_id_;
  std::string engine_id_;
  std::uint64_t nbytes_ = 0;
  Clock::time_point started_ = Clock::now();
  RegionRefs* regions_ = nullptr;
  PeerCache* peers_ = nullptr;

  mutable Mutex mutex_;
  CondVar posted_;
  bool posting_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Reading> reading_ ONESIDED_GUARDED_BY(mutex_);  // none before it was posted, or with nothing to move
  FetchState state_ ONESIDED_GUARDED_BY(mutex_) = FetchState::kRunning;
  bool abort_asked_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::optional<Error> error_ ONESIDED_GUARDED_BY(mutex_);
  std::uint64_t elapsed_us_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::vector<RegionRefs::Held> held_ ONESIDED_GUARDED_BY(mutex_);
  PeerCache::Pin pin_ ONESIDED_GUARDED_BY(mutex_);
};

// Fetches of this process. Internally synchronized. Engine, regions and peers must outlive it and every Fetch.
class Fetches {
 public:
  Fetches(EnginePort& engine, RegionRefs& regions, PeerCache& peers)
      : engine_(engine), regions_(regions), peers_(peers) {}
  Fetches(const Fetches&) = delete;
  Fetches& operator=(const Fetches&) = delete;

  // Connects if need be (blocks at most connect_timeout_ms) and starts to move. PARAM_INVALID: description and targets
  // do not fit, or not a description. CANCELLED: aborted meanwhile. Otherwise the errors of register_mem, connect and
  // transfer_async. A connection that broke unnoticed since its last use is renewed once.
  Result<std::shared_ptr<Fetch>> start(FetchSpec spec);
  // Aborts the fetches of this object that run now, those that still connect included; returns how many when all are
  // quiet. Later ones are not affected.
  std::size_t abort(const std::string& object_id);

 private:
  Result<std::vector<ReadItem>> hold_targets(const FetchSpec& spec, const ObjectDesc& object, Fetch& fetch);
  Result<void> begin(const FetchSpec& spec, const ObjectDesc& object, const std::vector<ReadItem>& items, Fetch& fetch);
  Result<std::shared_ptr<Reading>> post(const FetchSpec& spec, const ObjectDesc& object,
                                        const std::vector<ReadItem>& items, Fetch& fetch);
  void enter(const std::shared_ptr<Fetch>& fetch);

  EnginePort& engine_;
  RegionRefs& regions_;
  PeerCache& peers_;

  Mutex mutex_;
  std::unordered_multimap<std::string, std::weak_ptr<Fetch>> running_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
