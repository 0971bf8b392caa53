// A device for the pool's tests: a fixed capacity, its own count of allocated bytes, addresses without memory, failures
// and misaligned bases on demand, and streams whose work ends when the test calls finish().
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "onesided/base/align.h"
#include "onesided/base/mutex.h"
#include "onesided/device/device.h"

namespace onesided {

// Internally synchronized. The counters belong to the device and are independent of a pool's statistics.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(std::uint64_t capacity = 8 * kGiB) : capacity_(capacity) {}

  std::uint64_t used_bytes() { return read(used_); }
  std::uint64_t allocations() { return read(allocations_); }
  std::uint64_t frees() { return read(frees_); }
  std::uint64_t wrong_frees() { return read(wrong_frees_); }
  std::uint64_t largest_request() { return read(largest_request_); }
  std::uint64_t live_events() { return read(live_events_); }
  // From now on each base lies `offset` bytes past a 2 MiB boundary.
  void misalign(std::uint64_t offset) {
    MutexLock lock(mutex_);
    offset_ = offset;
  }
  // allocate() fails after `count` more successful calls; -1: never.
  void fail_after(std::int64_t count) {
    MutexLock lock(mutex_);
    fail_after_ = count;
  }
  // Events recorded on the stream are incomplete until finish(stream).
  void hold(Stream stream) {
    MutexLock lock(mutex_);
    held_[stream] = true;
  }
  void finish(Stream stream) {
    MutexLock lock(mutex_);
    held_[stream] = false;
    done_up_to_[stream] = next_event_;
  }
  bool waited_on_host() { return read(waited_); }

  std::string_view name() const override { return "fake:0"; }
  MemType mem_type() const override { return MemType::kDevice; }
  std::uint64_t page_bytes() const override { return 4 * kKiB; }
  std::uint64_t registration_alignment() const override { return 2 * kMiB; }
  bool host_accessible() const override { return false; }

  Result<void*> allocate(std::uint64_t nbytes, std::uint64_t) override {
    MutexLock lock(mutex_);
    largest_request_ = std::max(largest_request_, nbytes);
    if (fail_after_ == 0 || nbytes > capacity_ - used_) {
      return Error{Status::kResourceExhausted, fmt::format("{} of {} bytes are used", used_, capacity_)};
    }
    if (fail_after_ > 0) --fail_after_;
    const std::uint64_t base = next_address_ + offset_;
    next_address_ += *align_up(nbytes + offset_, 2 * kMiB) + 2 * kMiB;
    live_[base] = nbytes;
    used_ += nbytes;
    ++allocations_;
    return reinterpret_cast<void*>(base);
  }
  Result<void> free(void* base, std::uint64_t nbytes) override {
    MutexLock lock(mutex_);
    const auto found = live_.find(reinterpret_cast<std::uintptr_t>(base));
    if (found == live_.end() || found->second != nbytes) {
      ++wrong_frees_;
      return Error{Status::kNotFound, fmt::format("{} with {} bytes was never allocated", base, nbytes)};
    }
    used_ -= nbytes;
    live_.erase(found);
    ++frees_;
    return {};
  }
  Result<MemoryInfo> memory_info() override { return MemoryInfo{capacity_ - used_bytes(), capacity_}; }

  // An event is a stream and a sequence number in one allocation.
  Result<Event> record_event(Stream stream) override {
    MutexLock lock(mutex_);
    ++live_events_;
    return Event{new Mark{stream, ++next_event_}};
  }
  Result<bool> event_done(Event event) override {
    MutexLock lock(mutex_);
    const auto& mark = *static_cast<Mark*>(event.handle);
    return !held_[mark.first] || mark.second <= done_up_to_[mark.first];
  }
  Result<void> wait_event(Event event) override {
    MutexLock lock(mutex_);
    waited_ = true;
    const auto& mark = *static_cast<Mark*>(event.handle);
    done_up_to_[mark.first] = std::max(done_up_to_[mark.first], mark.second);
    return {};
  }
  void release_event(Event event) override {
    MutexLock lock(mutex_);
    --live_events_;
    delete static_cast<Mark*>(event.handle);
  }
  Result<void> synchronize() override { return {}; }

  Result<void> copy_to_host(void*, const void*, std::uint64_t) override { return unsupported(); }
  Result<void> copy_from_host(void*, const void*, std::uint64_t) override { return unsupported(); }
  Result<ExportedMemory> export_memory(const void*) override { return unsupported(); }
  Result<PointerInfo> inspect(const void*) override { return unsupported(); }

 private:
  using Mark = std::pair<Stream, std::uint64_t>;

  static Error unsupported() { return {Status::kUnsupported, "the fake device has addresses, but no bytes"}; }
  template <typename Value>
  Value read(const Value& value) {
    MutexLock lock(mutex_);
    return value;
  }

  Mutex mutex_;
  const std::uint64_t capacity_;
  std::uint64_t next_address_ = std::uint64_t{1} << 40;
  std::uint64_t offset_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t allocations_ = 0;
  std::uint64_t frees_ = 0;
  std::uint64_t wrong_frees_ = 0;
  std::uint64_t largest_request_ = 0;
  std::uint64_t live_events_ = 0;
  std::uint64_t next_event_ = 0;
  std::int64_t fail_after_ = -1;
  bool waited_ = false;
  std::map<std::uint64_t, std::uint64_t> live_;
  std::map<Stream, bool> held_;
  std::map<Stream, std::uint64_t> done_up_to_;
};

// Streams by number, for tests.
inline Stream stream_number(std::uintptr_t number) { return Stream{reinterpret_cast<void*>(number)}; }

}  // namespace onesided
