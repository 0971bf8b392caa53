#include "async_connects.h"

#include <fmt/format.h>

#include <utility>

namespace onesided::hixl_abi {

AsyncConnects::AsyncConnects(std::uint32_t threads, std::uint32_t capacity, Run run)
    : capacity_(capacity), run_(std::move(run)) {
  threads_.reserve(threads);
  for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

AsyncConnects::~AsyncConnects() { stop(); }

Result<void> AsyncConnects::submit(Job job, const std::string& name, std::int32_t timeout_ms) {
  MutexLock lock(mutex_);
  if (stopped_) return Error(Status::kClosed, "the engine was finalized");
  if (waiting_ >= capacity_)
    return Error(Status::kResourceExhausted,
                 fmt::format("{} connection jobs wait already (connect_pool.task_queue_capacity)", waiting_));
  Remote& remote = remotes_[name];
  remote.waiting.push_back({job, timeout_ms});
  ++waiting_;
  if (!remote.running && remote.waiting.size() == 1) {
    ready_.push_back(name);
    wake_.notify_one();
  }
  return {};
}

void AsyncConnects::work() {
  MutexLock lock(mutex_);
  while (true) {
    while (ready_.empty() && !stopped_) wake_.wait(lock);
    if (stopped_) return;
    const std::string name = std::move(ready_.front());
    ready_.pop_front();
    Remote& remote = remotes_[name];  // stays where it is: entries of remotes_ are never erased
    const Waiting next = remote.waiting.front();
    remote.waiting.pop_front();
    --waiting_;
    remote.running = true;
    remote.running_job = next.job;

    lock.unlock();
    const Result<void> result = run_(next.job, name, next.timeout_ms);
    lock.lock();

    remote.running = false;
    if (next.job == Job::kDisconnect)
      remote.last = ConnectState::kNotConnected;
    else
      remote.last = result.ok() ? ConnectState::kConnected : ConnectState::kConnectFailed;
    if (!remote.waiting.empty()) {
      ready_.push_back(name);
      wake_.notify_one();
    }
  }
}

ConnectState AsyncConnects::state_of(const Remote& remote) {
  if (remote.running)
    return remote.running_job == Job::kConnect ? ConnectState::kConnecting : ConnectState::kDisconnecting;
  if (!remote.waiting.empty())
    return remote.waiting.front().job == Job::kConnect ? ConnectState::kConnectPending
                                                       : ConnectState::kDisconnectPending;
  return remote.last;
}

ConnectState AsyncConnects::state(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = remotes_.find(name);
  return found == remotes_.end() ? ConnectState::kNotConnected : state_of(found->second);
}

std::map<std::string, ConnectState> AsyncConnects::states() const {
  MutexLock lock(mutex_);
  std::map<std::string, ConnectState> out;
  for (const auto& [name, remote] : remotes_) out.emplace(name, state_of(remote));
  return out;
}

void AsyncConnects::stop() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    for (auto& [name, remote] : remotes_) {
      for (const Waiting& dropped : remote.waiting)
        remote.last = dropped.job == Job::kConnect ? ConnectState::kConnectFailed : ConnectState::kNotConnected;
      remote.waiting.clear();
    }
    ready_.clear();
    waiting_ = 0;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace onesided::hixl_abi
