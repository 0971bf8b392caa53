// One transfer as its caller sees it: a status that becomes final exactly once, the cause, and what each item did.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "onesided/base/clock.h"
#include "onesided/base/fork_guard.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/transport/transport.h"

namespace onesided {

// Names and values as in HIXL's public API.
enum class TransferStatus : std::uint32_t { kWaiting = 0, kCompleted = 1, kTimeout = 2, kFailed = 3 };
std::string_view transfer_status_name(TransferStatus status);

// One range to move, contiguous unless a RowShape goes with it. A value.
struct TransferItem {
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
  std::uint64_t nbytes = 0;
};

// How the bytes of an item lie when they are not contiguous: `nbytes` is rows x row_bytes, and the rows begin `pitch`
// bytes apart, on each side by itself. A value.
struct RowShape {
  std::uint64_t row_bytes = 0;  // 0: contiguous on both sides
  std::uint64_t local_pitch = 0;
  std::uint64_t remote_pitch = 0;
};

// What became of an item. A value.
struct ItemResult {
  Status status = Status::kSuccess;
  std::uint64_t bytes_done = 0;
};

class Leg;

// A transfer that was submitted. Thread-safe; may outlive its engine (it is final then). In a forked child one that was
// under way is FAILED with CLOSED and touches nothing: its threads, and who held its mutex, are the parent's.
class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  // `holds` keep the local memory registered. `ended` is called once, when nothing of the transfer moves any more and
  // before its status turns final; it may be empty.
  Transfer(Op op, std::vector<TransferItem> items, std::vector<RegionHold> holds, Deadline deadline,
           std::function<void(Transfer&)> ended);
  // One that ended before anything moved.
  static std::shared_ptr<Transfer> refused(Op op, std::vector<TransferItem> items, const Error& error);
  // One whose items all arrived already.
  static std::shared_ptr<Transfer> arrived(Op op, std::vector<TransferItem> items);
  ~Transfer();

  Op op() const { return op_; }
  TransferStatus status() const;
  // Blocks until the status is final and returns it; copies along while there is something to copy. TIMEOUT: the
  // CALLER's deadline passed first; the transfer goes on.
  Result<TransferStatus> wait(Deadline deadline);
  // Ends it early; returns when nothing moves any more. No-op when it has ended.
  void cancel();
  // The first thing that went wrong, if anything did.
  std::optional<Error> error() const;
  std::uint64_t bytes_done() const { return bytes_done_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_total() const { return bytes_total_; }
  // One a submitted item, in order. While the status is WAITING, an item that has not ended counts as success so far.
  std::vector<ItemResult> items() const;

  // For the engine.
  Deadline deadline() const { return deadline_; }
  // All legs, before any of them starts. At least one.
  void set_legs(std::vector<std::shared_ptr<Leg>> legs);
  // Ends what has not ended with this cause. Does not block; the first cause stays.
  void stop(const Error& why);
  // For legs: bytes [from, from + nbytes) of the move have arrived / could not be moved. refused() returns the end of
  // the item that holds byte `at`, in the move's bytes.
  void arrived(const Move& move, std::uint64_t from, std::uint64_t nbytes);
  std::uint64_t refused(const Move& move, std::uint64_t at, const Error& error);
  // For legs, before leg_ended(): the fate of all that neither arrived nor was refused.
  void left(const Error& why);
  // For legs: each exactly once, last.
  void leg_ended();

 private:
  template <typename Visit>
  void each_item(const Move& move, std::uint64_t from, std::uint64_t nbytes, Visit visit) const;
  void finish();
  void help(Deadline deadline) ONESIDED_EXCLUDES(mutex_);
  TransferStatus state() const { return static_cast<TransferStatus>(state_.load(std::memory_order_acquire)); }
  // What went wrong so far.
  struct Causes {
    std::optional<Error> error;              // the first
    std::optional<Status> left;              // of items that were left
    std::map<std::uint32_t, Status> failed;  // items that failed by themselves
  };
  Causes causes() const ONESIDED_NO_TSA;

  const ForkGuard process_;
  const Op op_;
  const Deadline deadline_;
  const std::vector<TransferItem> items_;
  std::uint64_t bytes_total_ = 0;
  std::function<void(Transfer&)> ended_;                // until finish()
  std::vector<RegionHold> holds_;                       // released by finish()
  std::unique_ptr<std::atomic<std::uint64_t>[]> done_;  // bytes, one an item
  std::atomic<std::uint64_t> bytes_done_{0};
  std::atomic<std::uint32_t> legs_open_{0};
  std::atomic<std::uint32_t> state_;  // TransferStatus; waiters sleep on it
  std::atomic<std::uint32_t> waiters_{0};

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Leg>> legs_ ONESIDED_GUARDED_BY(mutex_);  // emptied by finish(): legs hold the transfer
  Causes causes_ ONESIDED_GUARDED_BY(mutex_);
};

// The part of a transfer that goes over one link. Internally synchronized.
class Leg {
 public:
  virtual ~Leg() = default;
  // Ends what has not ended. Never blocks; leg_ended() follows soon.
  virtual void stop(const Error& why) = 0;
  // Does a piece of the work on the calling thread, which has nothing better to do. False: none to take.
  virtual bool run_piece() { return false; }
};

}  // namespace onesided
