#include "ascend_sim/acl/device.h"

#include <fmt/core.h>

#include <algorithm>

#include "ascend_sim/acl/errors.h"
#include "ascend_sim/acl/ledger.h"
#include "ascend_sim/faults/faults.h"
#include "onesided/base/log.h"

namespace onesided::sim {
namespace {

// How long a device that is given up may go on working.
constexpr std::int64_t kPatienceMs = 10'000;

}  // namespace

Result<void> DeviceState::charge(std::uint64_t nbytes) {
  const std::uint64_t cap = faults().cap_bytes();
  if (cap != 0 && used_.load(std::memory_order_relaxed) + nbytes > cap) {
    return Error{Status::kResourceExhausted, fmt::format("ONESIDED_SIM_FAULTS caps this process at {} bytes", cap)};
  }
  ONESIDED_TRY_ASSIGN(ledger, Ledger::machine());
  ONESIDED_TRY(ledger->charge(physical_, nbytes, capacity_bytes_));
  const std::uint64_t used = used_.fetch_add(nbytes, std::memory_order_relaxed) + nbytes;
  std::uint64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < used && !peak_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
  return {};
}

void DeviceState::refund(std::uint64_t nbytes) {
  const auto ledger = Ledger::machine();
  ONESIDED_CHECK(ledger.ok(), "refund of memory that no ledger has booked");
  used_.fetch_sub(nbytes, std::memory_order_relaxed);
  (*ledger)->refund(physical_, nbytes);
}

DeviceStats DeviceState::stats() const {
  return {mallocs_.load(std::memory_order_relaxed), frees_.load(std::memory_order_relaxed),
          used_.load(std::memory_order_relaxed), peak_.load(std::memory_order_relaxed)};
}

void DeviceState::poison(AclError code, const char* text) {
  MutexLock lock(mutex_);
  if (poisoned_.load(std::memory_order_relaxed)) return;
  poison_text_ = fmt::format("device {} stopped after an asynchronous failure (error {}): {}", logical_, code,
                             text ? text : "no words");
  log_line(LogLevel::kError, poison_text_);
  poisoned_.store(true, std::memory_order_release);
}

AclError DeviceState::sticky_error() {
  if (!poisoned()) return kAclOk;
  MutexLock lock(mutex_);
  return fail(kRtAicoreException, "{}", poison_text_);
}

std::shared_ptr<Stream> DeviceState::new_stream(std::uint32_t flags) {
  auto stream = std::make_shared<Stream>(*this, flags);
  MutexLock lock(mutex_);
  streams_.push_back(stream);
  return stream;
}

void DeviceState::forget_stream(const std::shared_ptr<Stream>& stream) {
  stream->close();
  MutexLock lock(mutex_);
  std::erase(streams_, stream);
}

std::vector<std::shared_ptr<Stream>> DeviceState::streams() {
  MutexLock lock(mutex_);
  return streams_;
}

AclError DeviceState::synchronize(Deadline deadline) {
  for (const auto& stream : streams()) {
    const AclError code = stream->synchronize(deadline);
    if (code == kRtStreamSyncTimeout) return code;
  }
  return sticky_error();
}

void DeviceState::abort_all() {
  for (const auto& stream : streams()) stream->abort();
}

void DeviceState::drain(std::int64_t patience_ms) {
  if (synchronize(Deadline::after_ms(patience_ms)) != kRtStreamSyncTimeout) return;
  abort_all();
  (void)synchronize(Deadline::after_ms(patience_ms));
}

void DeviceState::reset() {
  drain(kPatienceMs);
  MutexLock lock(mutex_);
  poison_text_.clear();
  poisoned_.store(false, std::memory_order_release);
}

}  // namespace onesided::sim
