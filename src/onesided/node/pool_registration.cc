#include "onesided/node/pool_registration.h"

#include <fmt/format.h>

#include <utility>

#include "onesided/base/log.h"

namespace onesided {

class PoolRegistration::Registrar final : public SegmentListener {
 public:
  explicit Registrar(RegistrationCalls calls) : calls_(std::move(calls)) {}

  void on_segment_added(const SegmentInfo& segment) override {
    {
      MutexLock lock(mutex_);
      if (closed_) return;
    }
    const auto handle = calls_.register_memory(segment.address, segment.nbytes, segment.device->mem_type());
    MutexLock lock(mutex_);
    if (handle.ok()) {
      entries_[segment.address] = {*handle};
      ++made_;
    } else {
      fail(handle.error().with_context(fmt::format("segment {:#x} of {} bytes", segment.address, segment.nbytes)));
    }
  }

  bool let_go(const SegmentInfo& segment) override { return release(segment.address); }
  void on_segment_dropped(const SegmentInfo&) override {}  // let_go() has deregistered it already

  // Registers no further segments and deregisters all. True if nothing is registered any more.
  bool close() {
    std::vector<std::uint64_t> addresses;
    {
      MutexLock lock(mutex_);
      closed_ = true;
      for (const auto& [address, entry] : entries_) addresses.push_back(address);
    }
    bool all = true;
    for (const std::uint64_t address : addresses) all = release(address) && all;
    return all;
  }

  std::uint64_t registered() const {
    MutexLock lock(mutex_);
    return entries_.size();
  }
  std::uint64_t made() const {
    MutexLock lock(mutex_);
    return made_;
  }
  std::vector<Error> failures() const {
    MutexLock lock(mutex_);
    return failures_;
  }

 private:
  void fail(Error error) ONESIDED_REQUIRES(mutex_) {
    log_line(LogLevel::kWarn, error.to_string());
    failures_.push_back(std::move(error));
  }

  // False: the engine could not deregister it, for example because a transfer still moves bytes there. Then the handle
  // is kept.
  bool release(std::uint64_t address) {
    std::uint64_t handle = 0;
    {
      MutexLock lock(mutex_);
      const auto found = entries_.find(address);
      if (found == entries_.end()) return true;
      handle = found->second.handle;
    }
    const auto released = calls_.deregister_memory(handle);
    MutexLock lock(mutex_);
    const auto found = entries_.find(address);
    // T0: trim | T1: close() -> both deregister, one finds that it is done.
    if (found == entries_.end() || found->second.handle != handle) return true;
    if (released.ok() || released.status() == Status::kNotFound || released.status() == Status::kClosed) {
      entries_.erase(found);
      return true;
    }
    if (!std::exchange(found->second.told, true)) {
      fail(released.error().with_context(fmt::format("segment {:#x} remains registered", address)));
    }
    return false;
  }

  struct Entry {
    std::uint64_t handle = 0;
    bool told = false;  // its failure to deregister has been reported
  };

  const RegistrationCalls calls_;
  mutable Mutex mutex_;
  std::map<std::uint64_t, Entry> entries_ ONESIDED_GUARDED_BY(mutex_);  // by segment address
  bool closed_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::uint64_t made_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::vector<Error> failures_ ONESIDED_GUARDED_BY(mutex_);
};

Result<std::unique_ptr<PoolRegistration>> PoolRegistration::create(Pool& pool, RegistrationCalls calls) {
  auto registrar = std::make_shared<Registrar>(std::move(calls));
  std::unique_ptr<PoolRegistration> made(new PoolRegistration(pool, registrar));
  made->subscription_ = pool.subscribe(registrar);
  const std::vector<Error> failures = registrar->failures();
  if (!failures.empty()) return failures.front();  // made's destructor deregisters the others
  return made;
}

PoolRegistration::~PoolRegistration() {
  // Memory that a transfer still uses must not be freed, so the registrar remains subscribed and is asked about it.
  if (registrar_->close()) pool_.unsubscribe(subscription_);
}

std::uint64_t PoolRegistration::segments_registered() const { return registrar_->registered(); }
std::uint64_t PoolRegistration::registrations_made() const { return registrar_->made(); }
std::vector<Error> PoolRegistration::failures() const { return registrar_->failures(); }

}  // namespace onesided
