// Events order streams against each other and the host. A record is a numbered mark in a stream; waiting means
// waiting for the number seen at the time of the call, so that a later record cannot delay an earlier wait.
#pragma once

#include <cstdint>
#include <memory>

#include "ascend_sim/acl/abi.h"
#include "ascend_sim/acl/stream.h"
#include "onesided/base/clock.h"
#include "onesided/base/mutex.h"

namespace onesided::sim {

// Internally synchronized. Held by shared_ptr: marks queued on a stream outlive the handle.
class Event : public std::enable_shared_from_this<Event> {
 public:
  explicit Event(std::uint32_t flags) : flags_(flags) {}
  std::uint32_t flags() const { return flags_; }

  // Queues a mark.
  AclError record(Stream& stream);
  // Makes the stream wait for the last mark recorded so far; nothing when none was.
  AclError block(Stream& stream);
  // True when the last mark has been passed, or none was ever recorded.
  bool complete();
  // Waits for the last mark recorded so far. False when the deadline passed.
  bool wait(Deadline deadline);
  // Forgets its marks.
  void reset();
  // When the last mark was passed, ns on the monotonic clock; 0: not yet.
  std::uint64_t timestamp_ns();

 private:
  class Mark;
  bool wait_for(std::uint64_t mark, Deadline deadline);
  void hold(const Stream& stream, std::uint64_t mark);
  void pass(std::uint64_t mark);

  const std::uint32_t flags_;
  Mutex mutex_;
  CondVar passed_mark_;
  std::uint64_t recorded_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::uint64_t passed_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::uint64_t passed_at_ns_ ONESIDED_GUARDED_BY(mutex_) = 0;
};

}  // namespace onesided::sim
