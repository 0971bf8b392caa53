// A stream is a queue that really runs on its own, in order, so that a program that forgets to synchronise is
// wrong here too.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "ascend_sim/acl/abi.h"
#include "onesided/base/clock.h"
#include "onesided/base/mutex.h"

namespace onesided::sim {

class DeviceState;

// One in-order queue of a device with a worker of its own, started with the first piece of work. Internally
// synchronized. Held by shared_ptr: the worker keeps it until its queue is closed and empty.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // A piece of work; what it returns, if not 0, poisons the device.
  using Work = std::function<AclError()>;

  Stream(DeviceState& device, std::uint32_t flags) : device_(device), id_(next_id()), flags_(flags) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  DeviceState& device() const { return device_; }
  int id() const { return id_; }
  std::uint32_t flags() const { return flags_; }

  // Queues work. The device's sticky error if it has one: then nothing is queued.
  AclError enqueue(Work work);
  // Waits for what has been queued so far. kRtStreamSyncTimeout when the deadline passes, the device's sticky error
  // when there is one.
  AclError synchronize(Deadline deadline = Deadline::never());
  bool idle();
  // Takes away what has not begun, and ends a wait for an event that is running.
  void abort();
  // For work that waits: abort() came after this piece of work was taken.
  bool work_aborted() const { return work_aborted_.load(std::memory_order_acquire); }
  // No more work; the worker ends once the queue is empty. Does not wait.
  void close();

 private:
  static int next_id();
  void run();

  DeviceState& device_;
  const int id_;
  const std::uint32_t flags_;
  std::atomic<bool> work_aborted_{false};  // of the work that runs; written under mutex_

  Mutex mutex_;
  CondVar work_or_close_;
  CondVar progressed_;
  std::deque<Work> queue_ ONESIDED_GUARDED_BY(mutex_);
  std::uint64_t queued_ ONESIDED_GUARDED_BY(mutex_) = 0;    // ever
  std::uint64_t finished_ ONESIDED_GUARDED_BY(mutex_) = 0;  // ever; finished_ == queued_ means idle
  bool running_ ONESIDED_GUARDED_BY(mutex_) = false;        // a worker exists
  bool closed_ ONESIDED_GUARDED_BY(mutex_) = false;
};

}  // namespace onesided::sim
