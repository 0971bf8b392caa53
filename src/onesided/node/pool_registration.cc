#include "onesided/node/pool_registration.h"

#include <fmt/format.h>

#include <utility>

#include "onesided/base/log.h"

namespace onesided {

class PoolRegistration::Registrar final : public SegmentListener {
 public:
  explicit Registrar(RegistrationCalls calls) : calls_(std::move(calls)) {}

  void on_segment_added(const SegmentInfo& segment) override {
    const auto handle = calls_.register_memory(segment.address, segment.nbytes, segment.device->mem_type());
    MutexLock lock(mutex_);
    if (handle.ok()) {
      handles_[segment.address] = *handle;
      ++made_;
    } else {
      fail(handle.error().with_context(fmt::format("segment {:#x} of {} bytes", segment.address, segment.nbytes)));
    }
  }

  void on_segment_dropped(const SegmentInfo& segment) override { release(segment.address); }

  void release_all() {
    for (;;) {
      std::uint64_t address = 0;
      {
        MutexLock lock(mutex_);
        if (handles_.empty()) return;
        address = handles_.begin()->first;
      }
      release(address);
    }
  }

  std::uint64_t registered() const {
    MutexLock lock(mutex_);
    return handles_.size();
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

  void release(std::uint64_t address) {
    std::uint64_t handle = 0;
    {
      MutexLock lock(mutex_);
      const auto found = handles_.find(address);
      if (found == handles_.end()) return;
      handle = found->second;
      handles_.erase(found);
    }
    if (const auto released = calls_.deregister_memory(handle); !released.ok()) {
      MutexLock lock(mutex_);
      fail(released.error().with_context(fmt::format("segment {:#x}", address)));
    }
  }

  const RegistrationCalls calls_;
  mutable Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> handles_ ONESIDED_GUARDED_BY(mutex_);  // by segment address
  std::uint64_t made_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::vector<Error> failures_ ONESIDED_GUARDED_BY(mutex_);
};

Result<std::unique_ptr<PoolRegistration>> PoolRegistration::create(Pool& pool, RegistrationCalls calls) {
  auto registrar = std::make_shared<Registrar>(std::move(calls));
  std::unique_ptr<PoolRegistration> made(new PoolRegistration(pool, registrar));
  made->subscription_ = pool.subscribe(registrar);
  const std::vector<Error> failures = registrar->failures();
  if (!failures.empty()) return failures.front();  // made's destructor undoes what succeeded
  return made;
}

PoolRegistration::~PoolRegistration() {
  pool_.unsubscribe(subscription_);
  registrar_->release_all();
}

std::uint64_t PoolRegistration::segments_registered() const { return registrar_->registered(); }
std::uint64_t PoolRegistration::registrations_made() const { return registrar_->made(); }
std::vector<Error> PoolRegistration::failures() const { return registrar_->failures(); }

}  // namespace onesided
