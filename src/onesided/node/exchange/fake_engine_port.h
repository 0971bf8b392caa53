// An engine for tests, which choose every result and count every call.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/node/exchange/engine_port.h"

namespace onesided {

// A READ that ends when the test calls finish(). Thread-safe.
class FakeReading : public Reading {
 public:
  ~FakeReading() override { cancel(); }
  std::optional<Result<void>> wait(Deadline deadline) override {
    MutexLock lock(mutex_);
    while (!ended_)
      if (!changed_.wait(lock, deadline)) return std::nullopt;
    return ended_;
  }
  void cancel() override { finish(Error{Status::kCancelled, "cancelled"}); }
  // Only the first call has an effect.
  void finish(Result<void> how) {
    MutexLock lock(mutex_);
    if (!ended_) ended_ = std::move(how);
    changed_.notify_all();
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<Result<void>> ended_ ONESIDED_GUARDED_BY(mutex_);
};

// Has a region table like the real engine (no overlaps) and peers by name. Thread-safe; the public fields must be set
// before threads start.
class FakeEnginePort : public EnginePort {
 public:
  Result<std::uint64_t> register_range(const MemRange& range) override {
    MutexLock lock(mutex_);
    if (fail_register.contains(range.address)) return Error{Status::kResourceExhausted, "requested by the test"};
    for (const auto& [handle, other] : regions_)
      if (range.address < other.end() && other.address < range.end()) return Error{Status::kParamInvalid, "overlap"};
    regions_.emplace(next_handle_, range);
    registered.push_back(range);
    ++version_;
    return next_handle_++;
  }
  Result<void> deregister(std::uint64_t handle, Deadline) override {
    MutexLock lock(mutex_);
    if (busy.contains(handle)) return Error{Status::kBusy, "a reader still uses it"};
    if (!regions_.erase(handle)) return Error{Status::kNotFound, "no such region"};
    ++version_;
    return {};
  }
  bool covers(const MemRange& range) override {
    MutexLock lock(mutex_);
    return covers_locked(range);
  }
  Result<std::string> describe(std::span<const MemRange> ranges) override {
    MutexLock lock(mutex_);
    for (const MemRange& range : ranges)
      if (!covers_locked(range)) return Error{Status::kNotFound, "not registered"};
    return std::string(ranges.size(), 'r');
  }
  std::uint64_t regions_version() override {
    MutexLock lock(mutex_);
    return version_;
  }
  std::size_t regions() {
    MutexLock lock(mutex_);
    return regions_.size();
  }

  Result<void> connect(const std::string& remote, Deadline) override {
    MutexLock lock(mutex_);
    ++connects;
    changed_.notify_all();
    while (slow.contains(remote)) changed_.wait(lock);
    if (unreachable.contains(remote)) return Error{Status::kNotConnected, "no engine listens there"};
    connected_.insert(remote);
    return {};
  }
  void disconnect(const std::string& remote) override {
    MutexLock lock(mutex_);
    connected_.erase(remote);
    disconnected.push_back(remote);
  }
  bool connected(const std::string& remote) {
    MutexLock lock(mutex_);
    return connected_.contains(remote);
  }
  bool sees_new_regions() override { return dynamic; }
  Result<std::unique_ptr<Reading>> read(const std::string& remote, const std::string&, std::vector<ReadItem> items,
                                        std::optional<std::int64_t>) override {
    MutexLock lock(mutex_);
    if (stale_reads > 0) {
      --stale_reads;
      return Error{Status::kStale, "gone"};
    }
    if (!connected_.contains(remote)) return Error{Status::kNotConnected, "not connected"};
    last_items = std::move(items);
    auto reading = std::make_unique<FakeReading>();
    readings.push_back(reading.get());
    if (reads_finish) reading->finish({});
    return std::unique_ptr<Reading>(std::move(reading));
  }
  bool connected_to_maker(const std::string&, const std::string&) override { return same_life; }
  void lose(const std::string& remote) {
    MutexLock lock(mutex_);
    connected_.erase(remote);
  }

  // Blocks until a connect to the slow peer has started, then releases all waiting connects.
  void wait_for_connect() {
    MutexLock lock(mutex_);
    while (connects == 0) changed_.wait(lock);
  }
  void quicken() {
    MutexLock lock(mutex_);
    slow.clear();
    changed_.notify_all();
  }

  std::set<std::uint64_t> fail_register;
  std::set<std::uint64_t> busy;  // handles that cannot be deregistered
  std::set<std::string> unreachable;
  std::set<std::string> slow;  // peers whose connects block until quicken()
  bool same_life = false;
  bool dynamic = true;
  bool reads_finish = true;
  int stale_reads = 0;

  std::vector<MemRange> registered;
  std::vector<std::string> disconnected;
  std::vector<ReadItem> last_items;
  std::vector<FakeReading*> readings;
  int connects = 0;

 private:
  bool covers_locked(const MemRange& range) const ONESIDED_REQUIRES(mutex_) {
    for (const auto& [handle, other] : regions_)
      if (range.address >= other.address && range.end() <= other.end()) return true;
    return false;
  }

  Mutex mutex_;
  CondVar changed_;
  std::map<std::uint64_t, MemRange> regions_ ONESIDED_GUARDED_BY(mutex_);
  std::set<std::string> connected_ ONESIDED_GUARDED_BY(mutex_);
  std::uint64_t next_handle_ ONESIDED_GUARDED_BY(mutex_) = 1;
  std::uint64_t version_ ONESIDED_GUARDED_BY(mutex_) = 0;
};

}  // namespace onesided
