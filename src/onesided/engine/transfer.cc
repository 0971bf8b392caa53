#include "onesided/engine/transfer.h"

#include <fmt/format.h>

#include <algorithm>

#include "onesided/base/futex.h"

namespace onesided {

std::string_view transfer_status_name(TransferStatus status) {
  switch (status) {
    case TransferStatus::kWaiting: return "WAITING";
    case TransferStatus::kCompleted: return "COMPLETED";
    case TransferStatus::kTimeout: return "TIMEOUT";
    case TransferStatus::kFailed: return "FAILED";
  }
  return "UNKNOWN";
}

Transfer::Transfer(Op op, std::vector<TransferItem> items, std::vector<RegionHold> holds, Deadline deadline,
                   std::function<void(Transfer&)> ended)
    : op_(op),
      deadline_(deadline),
      items_(std::move(items)),
      ended_(std::move(ended)),
      holds_(std::move(holds)),
      done_(std::make_unique<std::atomic<std::uint64_t>[]>(items_.size())),
      state_(static_cast<std::uint32_t>(TransferStatus::kWaiting)) {
  for (const auto& item : items_) bytes_total_ += item.nbytes;
}

Transfer::~Transfer() {
  ONESIDED_CHECK(status() != TransferStatus::kWaiting, "a transfer of {} bytes was dropped while it ran", bytes_total_);
}

std::shared_ptr<Transfer> Transfer::refused(Op op, std::vector<TransferItem> items, const Error& error) {
  auto transfer =
      std::make_shared<Transfer>(op, std::move(items), std::vector<RegionHold>(), Deadline::never(), nullptr);
  transfer->left(error);
  transfer->finish();
  return transfer;
}

std::shared_ptr<Transfer> Transfer::arrived(Op op, std::vector<TransferItem> items) {
  auto transfer =
      std::make_shared<Transfer>(op, std::move(items), std::vector<RegionHold>(), Deadline::never(), nullptr);
  for (std::size_t i = 0; i < transfer->items_.size(); ++i) transfer->done_[i] = transfer->items_[i].nbytes;
  transfer->bytes_done_ = transfer->bytes_total_;
  transfer->finish();
  return transfer;
}

TransferStatus Transfer::status() const {
  const auto now = state();
  return now == TransferStatus::kWaiting && !process_.same_process() ? TransferStatus::kFailed : now;
}

Result<TransferStatus> Transfer::wait(Deadline deadline) {
  if (status() != TransferStatus::kWaiting) return status();
  help(deadline);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  bool in_time = true;
  while (status() == TransferStatus::kWaiting && in_time)
    in_time = futex_wait(state_, static_cast<std::uint32_t>(TransferStatus::kWaiting), deadline);
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
  if (status() != TransferStatus::kWaiting) return status();
  return Error(Status::kTimeout,
               fmt::format("the transfer is not finished, {} of {} bytes done; wait again or cancel it", bytes_done(),
                           bytes_total_));
}

void Transfer::help(Deadline deadline) {
  MutexLock lock(mutex_);
  const auto legs = legs_;
  lock.unlock();
  for (const auto& leg : legs) {
    while (!deadline.passed() && leg->run_piece()) {
    }
  }
}

void Transfer::cancel() {
  if (status() != TransferStatus::kWaiting) return;
  stop(Error(Status::kCancelled, "cancelled by its caller"));
  (void)wait(Deadline::never());
}

// Without thread-safety analysis: in a forked child no thread writes a transfer's causes, and no thread unlocks its
// mutex.
Transfer::Causes Transfer::causes() const {
  if (process_.same_process()) {
    MutexLock lock(mutex_);
    return causes_;
  }
  if (state() != TransferStatus::kWaiting) return causes_;
  return {
      Error(Status::kClosed, "the transfer was unfinished when this process was forked; it continues in the parent"),
      Status::kClosed,
      {}};
}

std::optional<Error> Transfer::error() const { return causes().error; }

std::vector<ItemResult> Transfer::items() const {
  const bool waiting = status() == TransferStatus::kWaiting;
  std::vector<ItemResult> results(items_.size());
  const auto causes = this->causes();
  for (std::size_t i = 0; i < items_.size(); ++i) {
    results[i].bytes_done = done_[i].load(std::memory_order_relaxed);
    if (!waiting && results[i].bytes_done < items_[i].nbytes) results[i].status = causes.left.value_or(Status::kFailed);
  }
  for (const auto& [item, status] : causes.failed) results[item].status = status;
  return results;
}

void Transfer::set_legs(std::vector<std::shared_ptr<Leg>> legs) {
  ONESIDED_CHECK(!legs.empty(), "a transfer without legs");
  legs_open_.store(static_cast<std::uint32_t>(legs.size()), std::memory_order_relaxed);
  MutexLock lock(mutex_);
  legs_ = std::move(legs);
}

void Transfer::stop(const Error& why) {
  MutexLock lock(mutex_);
  if (state() != TransferStatus::kWaiting) return;
  const auto legs = legs_;
  lock.unlock();
  for (const auto& leg : legs) leg->stop(why);
}

template <typename Visit>
void Transfer::each_item(const Move& move, std::uint64_t from, std::uint64_t nbytes, Visit visit) const {
  if (move.items == 1) return visit(move.item, nbytes);
  // Merged items are adjacent in local memory.
  const auto first = items_.begin() + move.item, last = first + move.items;
  const std::uint64_t start = move.local + from, end = start + nbytes;
  auto item = std::prev(std::upper_bound(first, last, start,
                                         [](std::uint64_t value, const TransferItem& it) { return value < it.local; }));
  for (; item != last && item->local < end; ++item) {
    const std::uint64_t low = std::max(start, item->local), high = std::min(end, item->local + item->nbytes);
    visit(static_cast<std::uint32_t>(item - items_.begin()), high - low);
  }
}

void Transfer::arrived(const Move& move, std::uint64_t from, std::uint64_t nbytes) {
  each_item(move, from, nbytes, [this](std::uint32_t item, std::uint64_t bytes) {
    done_[item].fetch_add(bytes, std::memory_order_relaxed);
  });
  bytes_done_.fetch_add(nbytes, std::memory_order_relaxed);
}

std::uint64_t Transfer::refused(const Move& move, std::uint64_t at, const Error& error) {
  std::uint32_t refused_item = move.item;
  each_item(move, at, 1, [&refused_item](std::uint32_t item, std::uint64_t) { refused_item = item; });
  MutexLock lock(mutex_);
  causes_.failed.try_emplace(refused_item, error.status());
  if (!causes_.error) causes_.error = error.with_context(fmt::format("item {}", refused_item));
  if (move.items == 1) return move.nbytes;
  return items_[refused_item].local + items_[refused_item].nbytes - move.local;
}

void Transfer::left(const Error& why) {
  MutexLock lock(mutex_);
  if (!causes_.error) causes_.error = why;
  if (!causes_.left) causes_.left = why.status();
}

void Transfer::leg_ended() {
  if (legs_open_.fetch_sub(1, std::memory_order_acq_rel) == 1) finish();
}

std::int64_t Transfer::elapsed_us() const {
  const auto final_us = elapsed_us_.load(std::memory_order_relaxed);
  if (final_us >= 0) return final_us;
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - started_).count();
}

void Transfer::finish() {
  const auto self = weak_from_this().lock();  // the last leg may hold the last reference
  MutexLock lock(mutex_);
  const auto legs = std::move(legs_);
  legs_.clear();
  auto last = TransferStatus::kCompleted;
  if (causes_.error)
    last = causes_.error->status() == Status::kTimeout ? TransferStatus::kTimeout : TransferStatus::kFailed;
  lock.unlock();
  holds_.clear();
  elapsed_us_.store(elapsed_us(), std::memory_order_relaxed);
  if (const auto ended = std::exchange(ended_, nullptr)) ended(*this);
  state_.store(static_cast<std::uint32_t>(last), std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) != 0) futex_wake_all(state_);
}

}  // namespace onesided
