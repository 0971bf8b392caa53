// A submitted transfer: a status that becomes final exactly once, the cause of a failure, and the result of each item.
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

// A submitted transfer. Thread-safe; may outlive its engine (its status is final then). In a forked child an unfinished
// transfer is FAILED with CLOSED and accesses nothing: its threads, and the holder of its mutex, belong to the parent.
class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  // `holds` keep the local memory registered. `ended` (may be empty) is called once, when no byte of the transfer can
  // move and before its status becomes final.
  Transfer(Op op, std::vector<TransferItem> items, std::vector<RegionHold> holds, Deadline deadline,
           std::function<void(Transfer&)> ended);
  // A transfer that failed before any byte moved.
  static std::shared_ptr<Transfer> refused(Op op, std::vector<TransferItem> items, const Error& error);
  // A transfer whose items have all arrived.
  static std::shared_ptr<Transfer> arrived(Op op, std::vector<TransferItem> items);
  ~Transfer();

  Op op() const { return op_; }
  TransferStatus status() const;
  // Blocks until the status is final and returns it; the calling thread takes part in the copying. TIMEOUT: the
  // CALLER's deadline passed first; the transfer continues.
  Result<TransferStatus> wait(Deadline deadline);
  // Ends the transfer early; blocks until no byte of it can move. No-op if it has ended.
  void cancel();
  // The first error, if there was one.
  std::optional<Error> error() const;
  std::uint64_t bytes_done() const { return bytes_done_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_total() const { return bytes_total_; }
  // From its submission to its end, or to now.
  std::int64_t elapsed_us() const;
  // One result per submitted item, in order. While the status is WAITING, an unfinished item is reported as success.
  std::vector<ItemResult> items() const;

  // For the engine.
  Deadline deadline() const { return deadline_; }
  // Sets all legs (at least one), before any of them starts.
  void set_legs(std::vector<std::shared_ptr<Leg>> legs);
  // Ends the unfinished items with this cause. Does not block; the first cause is kept.
  void stop(const Error& why);
  // For legs: bytes [from, from + nbytes) of the move have arrived / could not be moved. refused() returns the end of
  // the item that holds byte `at`, in the move's bytes.
  void arrived(const Move& move, std::uint64_t from, std::uint64_t nbytes);
  std::uint64_t refused(const Move& move, std::uint64_t at, const Error& error);
  // For legs, before leg_ended(): the error of all items that neither arrived nor were refused.
  void left(const Error& why);
  // For legs: called by each exactly once, as its last call.
  void leg_ended();

 private:
  template <typename Visit>
  void each_item(const Move& move, std::uint64_t from, std::uint64_t nbytes, Visit visit) const;
  void finish();
  void help(Deadline deadline) ONESIDED_EXCLUDES(mutex_);
  TransferStatus state() const { return static_cast<TransferStatus>(state_.load(std::memory_order_acquire)); }
  // Errors so far.
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
  const Clock::time_point started_ = Clock::now();
  std::atomic<std::int64_t> elapsed_us_{-1};            // set by finish()
  std::function<void(Transfer&)> ended_;                // until finish()
  std::vector<RegionHold> holds_;                       // released by finish()
  std::unique_ptr<std::atomic<std::uint64_t>[]> done_;  // bytes, one counter per item
  std::atomic<std::uint64_t> bytes_done_{0};
  std::atomic<std::uint32_t> legs_open_{0};
  std::atomic<std::uint32_t> state_;  // TransferStatus; waiting threads block on it
  std::atomic<std::uint32_t> waiters_{0};

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Leg>> legs_ ONESIDED_GUARDED_BY(mutex_);  // emptied by finish(): legs hold the transfer
  Causes causes_ ONESIDED_GUARDED_BY(mutex_);
};

// The part of a transfer that goes over one link. Internally synchronized.
class Leg {
 public:
  virtual ~Leg() = default;
  // Ends the unfinished part. Never blocks; leg_ended() follows soon.
  virtual void stop(const Error& why) = 0;
  // Copies one piece on the calling thread, which is waiting for the transfer. False: no piece is left.
  virtual bool run_piece() { return false; }
};

}  // namespace onesided
