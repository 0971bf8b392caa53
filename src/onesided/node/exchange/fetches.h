// Fetches: the reader's side of an object. While bytes may move, a fetch holds the registration of its targets, its
// peer's connection and the READ. It ends in exactly one state, whatever happens to the owner, to the caller or to Ray,
// which may drop a request without waiting for it.
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

// What to fetch: the object, its owner and the targets. A value.
struct FetchSpec {
  std::string object_id;
  std::string engine_id;
  std::uint64_t meta_version = 0;
  std::string desc;  // ObjectDesc, encoded, by the owner's TensorStore
  std::vector<TensorSpan>
      targets;  // one per tensor, with the same number of bytes; must remain valid while the fetch runs
  std::int64_t connect_timeout_ms = 5000;
  std::optional<std::int64_t> transfer_timeout_ms;  // std::nullopt: no limit
};

enum class FetchState : std::uint8_t { kRunning, kDone, kFailed, kAborted };

// The fetch of one object. Internally synchronized: one thread may wait while another aborts. Made by Fetches. The
// destructor aborts it if it is still running; afterwards no byte can be written into the targets.
class Fetch {
 public:
  ~Fetch();
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  // Blocks until the fetch has ended or the deadline has passed (kRunning; the fetch continues). After the end no byte
  // can move, and the state never changes.
  FetchState wait(Deadline deadline);
  // Blocks until no byte can be written into the targets; the state becomes kAborted. No effect if the fetch has ended.
  void abort();

  FetchState state() const;
  // The reason for a failure or an abort.
  std::optional<Error> error() const;
  std::uint64_t nbytes() const { return nbytes_; }
  // Wall time from the start to the end as observed by the first waiting thread; 0 while it runs.
  std::uint64_t elapsed_us() const;

 private:
  friend class Fetches;
  Fetch() = default;
  void end(FetchState state, std::optional<Error> error);
  // Called before and after posting: an abort either precedes the posting (false: do not post) or waits for it.
  bool begin_posting();
  void end_posting(std::shared_ptr<Reading> reading);
  std::shared_ptr<Reading> reading() const;
  // True if the peer's connection must not be reused after this error: the next fetch reconnects.
  static bool breaks_connection(Status status);

  // Constant before the first public call.
  std::string object_id_;
  std::string engine_id_;
  std::uint64_t nbytes_ = 0;
  Clock::time_point started_ = Clock::now();
  RegionRefs* regions_ = nullptr;
  PeerCache* peers_ = nullptr;

  mutable Mutex mutex_;
  CondVar posted_;
  bool posting_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Reading> reading_
      ONESIDED_GUARDED_BY(mutex_);  // null before it was posted, or if there is nothing to move
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

  // Connects if necessary (blocks at most connect_timeout_ms) and starts the READ. PARAM_INVALID: description and
  // targets do not match, or the description is invalid. CANCELLED: aborted meanwhile. Otherwise the errors of
  // register_mem, connect and transfer_async. If the connection has broken since its last use, it is renewed once.
  Result<std::shared_ptr<Fetch>> start(FetchSpec spec);
  // Aborts the running fetches of this object, including those that are still connecting; returns their number when no
  // byte can be written into their targets. Later fetches are not affected.
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
