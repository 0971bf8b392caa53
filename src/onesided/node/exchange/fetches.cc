#include "onesided/node/exchange/fetches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "onesided/base/align.h"

namespace onesided {
namespace {

// Maps the pieces of one remote tensor to those of its target, so that each item lies in one piece on either side.
void append_items(std::vector<ReadItem>& items, const TensorDesc& remote, std::uint32_t first_item,
                  const std::vector<MemRange>& local) {
  std::size_t there = 0, here = 0;
  std::uint64_t there_done = 0, here_done = 0;
  while (there < remote.pieces.size() && here < local.size()) {
    const std::uint64_t nbytes = std::min(remote.pieces[there] - there_done, local[here].nbytes - here_done);
    items.push_back({.local = local[here].address + here_done,
                     .item = first_item + static_cast<std::uint32_t>(there),
                     .offset = there_done,
                     .nbytes = nbytes});
    there_done += nbytes;
    here_done += nbytes;
    if (there_done == remote.pieces[there]) ++there, there_done = 0;
    if (here_done == local[here].nbytes) ++here, here_done = 0;
  }
}

Result<ObjectDesc> decode_for(const FetchSpec& spec) {
  ONESIDED_TRY_ASSIGN(object, ObjectDesc::decode(spec.desc));
  if (object.tensors.size() != spec.targets.size())
    return Error{Status::kParamInvalid, fmt::format("the owner described {} tensors, but there are {} targets",
                                                    object.tensors.size(), spec.targets.size())};
  for (std::size_t i = 0; i < object.tensors.size(); ++i) {
    const MemRange& target = spec.targets[i].bytes;
    if (object.tensors[i].nbytes() != target.nbytes)
      return Error{Status::kParamInvalid, fmt::format("tensor {} has {} bytes at its owner, but its target has {}", i,
                                                      object.tensors[i].nbytes(), target.nbytes)};
    const MemRange& whole = spec.targets[i].whole;
    if (target.nbytes > 0 && !range_within(target.address, target.nbytes, whole.address, whole.nbytes))
      return Error{Status::kParamInvalid, fmt::format("target {} does not lie in the memory that it belongs to", i)};
  }
  return object;
}

}  // namespace

Fetch::~Fetch() { abort(); }

FetchState Fetch::wait(Deadline deadline) {
  if (FetchState now = state(); now != FetchState::kRunning) return now;
  auto ended = reading()->wait(deadline);
  if (!ended) return state();
  if (ended->ok()) {
    end(FetchState::kDone, std::nullopt);
  } else {
    bool aborted;
    {
      MutexLock lock(mutex_);
      aborted = abort_asked_;
    }
    end(aborted ? FetchState::kAborted : FetchState::kFailed, ended->error());
  }
  return state();
}

void Fetch::abort() {
  std::shared_ptr<Reading> reading;
  {
    MutexLock lock(mutex_);
    if (state_ != FetchState::kRunning) return;
    abort_asked_ = true;
    while (posting_) posted_.wait(lock);
    reading = reading_;
  }
  // T0: connects | T1: abort() -> no byte has moved, and begin_posting() ensures that none will.
  if (!reading) return;
  // T0: wait() | T1: abort(): the READ ends once; both get the same result, and end() keeps the first one.
  reading->cancel();
  wait(Deadline::never());
}

bool Fetch::begin_posting() {
  MutexLock lock(mutex_);
  posting_ = !abort_asked_;
  return posting_;
}

void Fetch::end_posting(std::shared_ptr<Reading> reading) {
  MutexLock lock(mutex_);
  posting_ = false;
  reading_ = std::move(reading);
  posted_.notify_all();
}

std::shared_ptr<Reading> Fetch::reading() const {
  MutexLock lock(mutex_);
  return reading_;
}

void Fetch::end(FetchState state, std::optional<Error> error) {
  std::vector<RegionRefs::Held> held;
  PeerCache::Pin pin;
  {
    MutexLock lock(mutex_);
    if (state_ != FetchState::kRunning) return;
    state_ = state;
    error_ = error;
    elapsed_us_ = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - started_).count());
    held.swap(held_);
    pin = std::move(pin_);
  }
  if (error && breaks_connection(error->status())) peers_->mark_broken(engine_id_);
  for (const RegionRefs::Held& region : held) regions_->drop(region);
}

bool Fetch::breaks_connection(Status status) { return status == Status::kPeerLost || status == Status::kNotConnected; }

FetchState Fetch::state() const {
  MutexLock lock(mutex_);
  return state_;
}

std::optional<Error> Fetch::error() const {
  MutexLock lock(mutex_);
  return error_;
}

std::uint64_t Fetch::elapsed_us() const {
  MutexLock lock(mutex_);
  return elapsed_us_;
}

Result<std::shared_ptr<Fetch>> Fetches::start(FetchSpec spec) {
  const std::string where = fmt::format("fetching object {} from {}", spec.object_id, spec.engine_id);
  auto object = decode_for(spec);
  if (!object) return object.error().with_context(where);
  std::shared_ptr<Fetch> fetch(new Fetch);
  fetch->object_id_ = spec.object_id;
  fetch->engine_id_ = spec.engine_id;
  fetch->regions_ = &regions_;
  fetch->peers_ = &peers_;
  auto items = hold_targets(spec, *object, *fetch);
  if (!items) return items.error().with_context(where);
  if (items->empty()) {
    fetch->end(FetchState::kDone, std::nullopt);
    return fetch;
  }
  enter(fetch);
  if (auto begun = begin(spec, *object, *items, *fetch); !begun) {
    fetch->end(begun.status() == Status::kCancelled ? FetchState::kAborted : FetchState::kFailed, begun.error());
    return begun.error().with_context(where);
  }
  return fetch;
}

void Fetches::enter(const std::shared_ptr<Fetch>& fetch) {
  MutexLock lock(mutex_);
  std::erase_if(running_, [](const auto& entry) { return entry.second.expired(); });
  running_.emplace(fetch->object_id_, fetch);
}

Result<std::vector<ReadItem>> Fetches::hold_targets(const FetchSpec& spec, const ObjectDesc& object, Fetch& fetch) {
  std::vector<ReadItem> items;
  items.reserve(object.tensors.size());
  std::uint32_t first_item = 0;
  for (std::size_t i = 0; i < object.tensors.size(); ++i) {
    const TensorDesc& remote = object.tensors[i];
    if (remote.pieces.empty()) continue;
    auto held = regions_.hold(spec.targets[i]);
    if (!held) {
      fetch.end(FetchState::kFailed, held.error());
      return held.error().with_context(fmt::format("target {}", i));
    }
    append_items(items, remote, first_item, held->pieces);
    first_item += static_cast<std::uint32_t>(remote.pieces.size());
    fetch.nbytes_ += remote.nbytes();
    MutexLock lock(fetch.mutex_);
    if (!held->regions.empty()) fetch.held_.push_back(*std::move(held));
  }
  return items;
}

Result<void> Fetches::begin(const FetchSpec& spec, const ObjectDesc& object, const std::vector<ReadItem>& items,
                            Fetch& fetch) {
  const Deadline deadline = Deadline::after_ms(spec.connect_timeout_ms);
  std::optional<Error> first;
  while (true) {
    auto pin = peers_.pin(spec.engine_id, spec.meta_version, deadline);
    // The error of the old connection is more informative than the failure of the new one.
    if (!pin) return first.value_or(pin.error());
    auto reading = post(spec, object, items, fetch);
    if (reading) {
      MutexLock lock(fetch.mutex_);
      fetch.pin_ = *std::move(pin);
      return {};
    }
    // The owner may have restarted on the same address since the connection was last used. STALE memory does not mean
    // that the connection is broken; other fetches use it.
    const Status status = reading.status();
    const bool other_life = status == Status::kStale && !engine_.connected_to_maker(spec.engine_id, object.regions);
    if (first || !(other_life || Fetch::breaks_connection(status))) return reading.error();
    first = reading.error();
    peers_.mark_broken(spec.engine_id);
  }
}

Result<std::shared_ptr<Reading>> Fetches::post(const FetchSpec& spec, const ObjectDesc& object,
                                               const std::vector<ReadItem>& items, Fetch& fetch) {
  if (!fetch.begin_posting()) return Error{Status::kCancelled, "aborted before any byte had moved"};
  auto posted = engine_.read(spec.engine_id, object.regions, items, spec.transfer_timeout_ms);
  const auto failed = posted.ok() ? std::nullopt : std::optional(posted.error());
  const std::shared_ptr<Reading> reading = failed ? nullptr : *std::move(posted);
  fetch.end_posting(reading);
  if (failed) return *failed;
  return reading;
}

std::size_t Fetches::abort(const std::string& object_id) {
  std::vector<std::shared_ptr<Fetch>> found;
  {
    MutexLock lock(mutex_);
    const auto [begin, end] = running_.equal_range(object_id);
    for (auto entry = begin; entry != end; ++entry)
      if (auto fetch = entry->second.lock(); fetch && fetch->state() == FetchState::kRunning)
        found.push_back(std::move(fetch));
  }
  for (const auto& fetch : found) fetch->abort();
  return found.size();
}

}  // namespace onesided
