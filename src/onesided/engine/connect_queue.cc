#include "onesided/engine/connect_queue.h"

#include <fmt/format.h>

#include <deque>
#include <map>
#include <string>
#include <system_error>
#include <thread>

#include "onesided/base/mutex.h"

namespace onesided {

struct ConnectQueue::State {
  struct Remote {
    std::deque<Operation> waiting;
    bool running = false;  // a thread runs its operations
    Outcome outcome;
  };
  Mutex mutex;
  CondVar ended;
  bool closed ONESIDED_GUARDED_BY(mutex) = false;
  std::size_t running ONESIDED_GUARDED_BY(mutex) = 0;
  std::map<std::string, Remote, std::less<>> remotes ONESIDED_GUARDED_BY(mutex);
};

ConnectQueue::ConnectQueue() : state_(std::make_shared<State>()) {}
ConnectQueue::~ConnectQueue() = default;

Result<void> ConnectQueue::add(std::string_view remote_id, Operation operation) {
  auto& state = *state_;
  MutexLock lock(state.mutex);
  if (state.closed) return Error(Status::kClosed, "the engine is closed");
  // A refused operation has no effect: the status of the remote remains that of the operation before it.
  const auto known = state.remotes.find(remote_id);
  if (known != state.remotes.end() && known->second.waiting.size() >= kMaxQueued)
    return Error(Status::kResourceExhausted,
                 fmt::format("{} operations for {} are queued already, which is the limit", kMaxQueued, remote_id));
  const bool starts = known == state.remotes.end() || !known->second.running;
  if (starts) {
    if (state.running >= kMaxRemotes)
      return Error(Status::kResourceExhausted,
                   fmt::format("operations for {} remotes are pending already, which is the limit", kMaxRemotes));
    try {
      std::thread([shared = state_, id = std::string(remote_id)] { run(shared, id); }).detach();
    } catch (const std::system_error& error) {
      return Error(Status::kResourceExhausted, fmt::format("cannot start a thread: {}", error.what()));
    }
    ++state.running;
  }
  // The thread looks it up under the lock.
  auto& remote = state.remotes[std::string(remote_id)];
  remote.running = true;
  remote.outcome = Outcome();
  remote.waiting.push_back(std::move(operation));
  return {};
}

void ConnectQueue::run(const std::shared_ptr<State>& shared, const std::string& remote_id) {
  auto& state = *shared;
  MutexLock lock(state.mutex);
  auto& remote = state.remotes.find(remote_id)->second;
  while (!remote.waiting.empty()) {
    auto operation = std::move(remote.waiting.front());
    remote.waiting.pop_front();
    lock.unlock();
    const auto done = operation();
    operation = nullptr;
    lock.lock();
    if (!remote.waiting.empty()) continue;
    Outcome outcome;
    outcome.status = done.ok()                           ? TransferStatus::kCompleted
                     : done.status() == Status::kTimeout ? TransferStatus::kTimeout
                                                         : TransferStatus::kFailed;
    if (!done.ok()) outcome.error = done.error();
    remote.outcome = std::move(outcome);
  }
  remote.running = false;
  --state.running;
  state.ended.notify_all();
}

Result<ConnectQueue::Outcome> ConnectQueue::outcome(std::string_view remote_id) {
  MutexLock lock(state_->mutex);
  const auto at = state_->remotes.find(remote_id);
  if (at == state_->remotes.end())
    return Error(Status::kNotFound,
                 fmt::format("no asynchronous connect or disconnect was requested for {}", remote_id));
  return at->second.outcome;
}

void ConnectQueue::close() {
  MutexLock lock(state_->mutex);
  state_->closed = true;
  while (state_->running > 0) state_->ended.wait(lock);
}

}  // namespace onesided
