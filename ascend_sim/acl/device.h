// One simulated NPU: its capacity, counters, streams, and the error that persists until a reset.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ascend_sim/acl/abi.h"
#include "ascend_sim/acl/stream.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"

namespace onesided::sim {

// Counters of this process's use of a device. A value.
struct DeviceStats {
  std::uint64_t mallocs = 0;
  std::uint64_t frees = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t peak_bytes = 0;
};

// A device as this process sees it. Internally synchronized. Never destroyed.
class DeviceState {
 public:
  DeviceState(int logical, int physical, std::uint64_t capacity_bytes)
      : logical_(logical), physical_(physical), capacity_bytes_(capacity_bytes) {}
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  int logical() const { return logical_; }
  int physical() const { return physical_; }
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }

  // Charges memory on the machine's ledger. RESOURCE_EXHAUSTED: nothing has changed.
  Result<void> charge(std::uint64_t nbytes);
  void refund(std::uint64_t nbytes);
  void count_malloc() { mallocs_.fetch_add(1, std::memory_order_relaxed); }
  void count_free() { frees_.fetch_add(1, std::memory_order_relaxed); }
  DeviceStats stats() const;

  // After a failure of asynchronous work every later copy and launch fails, as on the hardware after an exception, so
  // that a wrong result is never read as a correct one. Only the first failure is kept.
  void poison(AclError code, const char* text);
  // 0, or 507015 with the first failure's message as this thread's recent error.
  AclError sticky_error();
  bool poisoned() const { return poisoned_.load(std::memory_order_acquire); }

  std::shared_ptr<Stream> new_stream(std::uint32_t flags);
  void forget_stream(const std::shared_ptr<Stream>& stream);
  // Waits for everything queued so far on all streams.
  AclError synchronize(Deadline deadline = Deadline::never());
  // Removes work that has not begun from all streams.
  void abort_all();
  // Waits for running work, and aborts work that does not end within `patience_ms`.
  void drain(std::int64_t patience_ms);
  // Drains, then clears the sticky error.
  void reset();

 private:
  std::vector<std::shared_ptr<Stream>> streams();

  const int logical_;
  const int physical_;
  const std::uint64_t capacity_bytes_;

  std::atomic<std::uint64_t> mallocs_{0};
  std::atomic<std::uint64_t> frees_{0};
  std::atomic<std::uint64_t> used_{0};
  std::atomic<std::uint64_t> peak_{0};

  std::atomic<bool> poisoned_{false};
  Mutex mutex_;
  std::string poison_text_ ONESIDED_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Stream>> streams_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided::sim
