#include "native_segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "newer_calls.h"
#include "onesided/base/log.h"

namespace onesided::torch_npu {
namespace {

using npu_alloc::TraceEntry;

// The allocator cannot be asked to keep a segment, and all of torch_npu waits meanwhile. This time is enough for any
// transfer in progress, but not for a suspended peer.
constexpr std::int64_t kPatienceMs = 10'000;

// The listeners for freed segments. Trackers cannot be detached, so each native allocator gets one permanent tracker,
// which calls these listeners. Internally synchronized, never destroyed.
class Listeners {
 public:
  static Listeners& instance() {
    static auto* listeners = new Listeners;
    return *listeners;
  }

  void add(NPUAllocator& native, const std::shared_ptr<NativeRegistration>& registration) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(registrations_, [](const auto& weak) { return weak.expired(); });
      registrations_.push_back(registration);
      first = followed_.insert(&native).second;
    }
    // Takes the allocator's lock, under which tell() takes this object's lock.
    if (first)
      counted_pools(&native).attachAllocatorTraceTracker([](const TraceEntry& entry) { instance().tell(entry); });
  }

 private:
  void tell(const TraceEntry& entry) {
    // A plain segment is reported before it is freed, a piece of a growable one after it was unmapped; the latter are
    // never registered.
    if (entry.action_ != TraceEntry::SEGMENT_FREE) return;
    std::vector<std::shared_ptr<NativeRegistration>> interested;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& weak : registrations_) {
        if (auto registration = weak.lock()) interested.push_back(std::move(registration));
      }
    }
    const auto begin = static_cast<std::uint64_t>(entry.addr_);
    for (const auto& registration : interested)
      registration->drop(begin, begin + static_cast<std::uint64_t>(entry.size_));
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<NativeRegistration>> registrations_;
  std::set<NPUAllocator*> followed_;
};

bool growable(NPUAllocator& native, std::uint64_t address) {
  const auto segments = native.snapshot().segments;
  return std::any_of(segments.begin(), segments.end(), [&](const auto& segment) {
    const auto begin = static_cast<std::uint64_t>(segment.address);
    return segment.is_expandable && begin <= address &&
           address < begin + static_cast<std::uint64_t>(segment.total_size);
  });
}

}  // namespace

std::shared_ptr<NativeRegistration> NativeRegistration::create(NPUAllocator& native, std::shared_ptr<Engine> engine) {
  if (!HasCountedPools<NPUAllocator>) refuse_older("attachAllocatorTraceTracker, which tells of a segment's end");
  std::shared_ptr<NativeRegistration> made(new NativeRegistration(native, std::move(engine)));
  Listeners::instance().add(native, made);
  return made;
}

Result<NativeRegistration::Range> NativeRegistration::add(void* block) {
  std::size_t size = 0;
  const auto base = reinterpret_cast<std::uintptr_t>(native_.getBaseAllocation(block, &size));
  const Range range{base, size};
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Error{Status::kClosed, "these registrations were closed"};
    if (entries_.count(base) != 0) return range;
  }
  if (growable(native_, reinterpret_cast<std::uintptr_t>(block))) {
    return Error{Status::kUnsupported,
                 fmt::format("{} lies in a growable segment (expandable_segments), whose end moves; allocate what is "
                             "transferred from an aligned pool",
                             block)};
  }
  ONESIDED_TRY_ASSIGN(handle, engine_->register_mem(base, size, MemType::kDevice));
  {
    const std::lock_guard lock(mutex_);
    if (!closed_ && entries_.try_emplace(base, Entry{size, handle}).second) {
      ++made_;
      return range;
    }
  }
  // T0, T1: add a block of one segment | both register it, the engine counts -> the later one undoes its count.
  ONESIDED_TRY(engine_->deregister_mem(handle));
  return add(block);
}

bool NativeRegistration::any_within(std::uint64_t begin, std::uint64_t end) const {
  const auto after = entries_.lower_bound(end);
  return after != entries_.begin() && std::prev(after)->first + std::prev(after)->second.nbytes > begin;
}

void NativeRegistration::drop(std::uint64_t begin, std::uint64_t end) {
  std::unique_lock lock(mutex_);
  std::map<std::uint64_t, MemHandle> leaving;  // by address
  for (auto& [address, entry] : entries_) {
    if (address >= end || address + entry.nbytes <= begin || entry.leaving) continue;
    entry.leaving = true;
    leaving[address] = entry.handle;
  }
  for (const auto& [address, handle] : leaving) {
    lock.unlock();
    const auto released = engine_->deregister_mem(handle, kPatienceMs);
    lock.lock();
    entries_.erase(address);
    if (!released.ok()) {
      failures_.push_back(released.error().with_context(fmt::format("native segment {:#x}", address)));
      log_line(LogLevel::kWarn, failures_.back().to_string());
    }
  }
  if (!leaving.empty()) left_.notify_all();
  // T0: close() deregisters | T1: the allocator frees the memory -> T1 waits until T0 is done with it.
  left_.wait(lock, [&] { return !any_within(begin, end); });
}

void NativeRegistration::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  drop(0, UINT64_MAX);
}

std::uint64_t NativeRegistration::segments_registered() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::uint64_t NativeRegistration::registrations_made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

std::vector<Error> NativeRegistration::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

}  // namespace onesided::torch_npu
