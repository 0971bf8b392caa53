// Deadlines on the monotonic clock. Every wait has one; "no limit" is a value of the same type.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace onesided {

using Clock = std::chrono::steady_clock;

// A point in time at which a wait ends, or never. A value.
class Deadline {
 public:
  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after_ms(std::int64_t timeout_ms) {
    // A century counts as "never", so that now + timeout does not overflow.
    if (timeout_ms >= 100LL * 365 * 24 * 3600 * 1000) return never();
    return Deadline(Clock::now() + std::chrono::milliseconds(std::max<std::int64_t>(timeout_ms, 0)));
  }
  // std::nullopt means no limit.
  static Deadline after_ms(std::optional<std::int64_t> timeout_ms) {
    return timeout_ms ? after_ms(*timeout_ms) : never();
  }

  bool is_never() const { return at_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }
  // For poll(2) and similar calls: milliseconds left, rounded up; 0 if passed, -1 for never.
  int poll_timeout_ms() const {
    if (is_never()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
  }
  friend auto operator<=>(const Deadline&, const Deadline&) = default;

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace onesided
