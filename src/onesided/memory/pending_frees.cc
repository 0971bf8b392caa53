#include "onesided/memory/pending_frees.h"

#include <fmt/format.h>

#include <utility>

#include "onesided/base/log.h"

namespace onesided {

PendingFrees::~PendingFrees() {
  MutexLock lock(mutex_);
  for (auto& [stream, marks] : marks_) {
    for (Mark& mark : marks) device_.release_event(mark.event);
  }
}

void PendingFrees::add(Block* block, std::vector<Stream> streams, bool defer) {
  count_.fetch_add(1, std::memory_order_relaxed);
  if (defer) {
    MutexLock lock(mutex_);
    deferred_.push_back({block, std::move(streams)});
    return;
  }
  record(block, streams);
}

void PendingFrees::record(Block* block, const std::vector<Stream>& streams) {
  // Events are made without the mutex, because the device may run other code meanwhile, which may free other blocks.
  std::vector<std::pair<Stream, Event>> events;
  for (const Stream stream : streams) {
    auto event = device_.record_event(stream);
    if (event.ok()) {
      events.emplace_back(stream, *event);
      continue;
    }
    log_line(LogLevel::kWarn, fmt::format("{}; waiting for the whole device instead", event.error().to_string()));
    if (const auto waited = device_.synchronize(); !waited.ok()) {
      // The device cannot be used any more. The block is never reused, because two owners of one block would be worse.
      log_line(LogLevel::kError, fmt::format("block {:#x} is lost: {}", block->address, waited.error().to_string()));
      for (auto& [unused, made] : events) device_.release_event(made);
      count_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
  }
  auto waiting = std::make_shared<Waiting>(Waiting{block, events.size()});
  MutexLock lock(mutex_);
  if (events.empty()) ready_.push_back(block);
  for (auto& [stream, event] : events) marks_[stream].push_back({event, waiting});
}

void PendingFrees::record_deferred() {
  std::vector<Deferred> deferred;
  {
    MutexLock lock(mutex_);
    deferred.swap(deferred_);
  }
  for (const Deferred& one : deferred) record(one.block, one.streams);
}

void PendingFrees::finish(Mark& mark, std::vector<Block*>& finished) {
  device_.release_event(mark.event);
  if (--mark.waiting->events_left == 0) finished.push_back(mark.waiting->block);
}

std::vector<Block*> PendingFrees::take_finished() {
  record_deferred();
  std::vector<Block*> finished;
  MutexLock lock(mutex_);
  finished.swap(ready_);
  for (auto entry = marks_.begin(); entry != marks_.end();) {
    std::deque<Mark>& marks = entry->second;
    while (!marks.empty()) {
      const auto done = device_.event_done(marks.front().event);
      if (!done.ok()) log_line(LogLevel::kError, done.error().to_string());
      if (!done.ok() || !*done) break;
      finish(marks.front(), finished);
      marks.pop_front();
    }
    entry = marks.empty() ? marks_.erase(entry) : std::next(entry);
  }
  count_.fetch_sub(finished.size(), std::memory_order_relaxed);
  return finished;
}

std::vector<Block*> PendingFrees::wait_all() {
  record_deferred();
  std::map<Stream, std::deque<Mark>> taken;
  std::vector<Block*> finished;
  {
    MutexLock lock(mutex_);
    taken.swap(marks_);
    finished.swap(ready_);
  }
  std::vector<Mark> done;
  for (auto& [stream, marks] : taken) {
    for (Mark& mark : marks) {
      const auto waited = device_.wait_event(mark.event);
      if (waited.ok()) {
        done.push_back(std::move(mark));
      } else {
        // Its event cannot be waited for; the block is never reused.
        log_line(LogLevel::kError, waited.error().to_string());
        device_.release_event(mark.event);
      }
    }
  }
  // T0: wait_all took some of a block's marks | T1: take_finished has the others -> the count is shared and needs the
  // lock.
  MutexLock lock(mutex_);
  for (Mark& mark : done) finish(mark, finished);
  count_.fetch_sub(finished.size(), std::memory_order_relaxed);
  return finished;
}

std::vector<Block*> PendingFrees::abandon() {
  MutexLock lock(mutex_);
  std::vector<Block*> finished;
  finished.swap(ready_);
  for (const Deferred& one : deferred_) finished.push_back(one.block);
  deferred_.clear();
  for (auto& [stream, marks] : marks_) {
    for (Mark& mark : marks) finish(mark, finished);
  }
  marks_.clear();
  count_.fetch_sub(finished.size(), std::memory_order_relaxed);
  return finished;
}

}  // namespace onesided
