#include "onesided/base/event_loop.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace onesided {
namespace {

constexpr std::uint64_t kWakeSerial = 0;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create(const std::string& thread_name, bool eager) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid()) {
    return Error(Status::kResourceExhausted, fmt::format("event loop: no descriptor left ({})", std::strerror(errno)));
  }
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake), eager));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeSerial;
  if (::epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, loop->wake_.get(), &event) != 0)
    return Error(Status::kResourceExhausted, fmt::format("event loop: epoll_ctl: {}", std::strerror(errno)));
  try {
    // The loop's thread first takes this lock, so that it reads thread_ after it is assigned.
    MutexLock lock(loop->mutex_);
    loop->thread_ = std::thread([raw = loop.get()] { raw->run(); });
  } catch (const std::system_error& failure) {
    return Error(Status::kResourceExhausted, fmt::format("event loop: cannot start a thread ({})", failure.what()));
  }
  ::pthread_setname_np(loop->thread_.native_handle(), thread_name.substr(0, 15).c_str());
  return loop;
}

EventLoop::EventLoop(Fd epoll, Fd wake, bool eager) : epoll_(std::move(epoll)), wake_(std::move(wake)), eager_(eager) {}

EventLoop::~EventLoop() { stop(); }

void EventLoop::wake() {
  const std::uint64_t one = 1;
  // Fails only if the counter is full; then the loop is awake anyway.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void EventLoop::post(Task task) {
  bool first = false;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    first = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (first) wake();
}

void EventLoop::stop() {
  MutexLock join(join_mutex_);
  if (!thread_.joinable()) return;
  ONESIDED_CHECK(!in_loop(), "EventLoop::stop() on its own thread");
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
  // Remaining timers and handlers may hold the owner of this loop, so they are destroyed here.
  timer_index_.clear();
  const auto timers = std::move(timers_);
  timers_.clear();
  MutexLock lock(mutex_);
  const auto watches = std::move(watches_);
  watches_.clear();
  const auto posted = std::move(posted_);
  posted_.clear();
  lock.unlock();
}

Result<void> EventLoop::watch(int fd, std::uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = (++serial_ << 32) | static_cast<std::uint32_t>(fd);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return Error(Status::kResourceExhausted, fmt::format("epoll_ctl for descriptor {}: {}", fd, std::strerror(errno)));
  MutexLock lock(mutex_);
  watches_[fd] = Watch{event.data.u64, std::make_shared<Handler>(std::move(handler))};
  return {};
}

void EventLoop::change(int fd, std::uint32_t events) {
  MutexLock lock(mutex_);
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->second.serial;
  const int rc = ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  ONESIDED_CHECK(rc == 0, "epoll_ctl(MOD, {}): {}", fd, std::strerror(errno));
}

void EventLoop::unwatch(int fd) {
  MutexLock lock(mutex_);
  if (watches_.erase(fd) == 0) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::call_at(Clock::time_point when, Task task) {
  const TimerId id = next_timer_++;
  timer_index_[id] = timers_.emplace(when, std::make_pair(id, std::move(task)));
  return id;
}

void EventLoop::cancel(TimerId timer) {
  const auto found = timer_index_.find(timer);
  if (found == timer_index_.end()) return;
  timers_.erase(found->second);
  timer_index_.erase(found);
}

int EventLoop::run_timers() {
  while (!timers_.empty()) {
    const auto first = timers_.begin();
    const auto now = Clock::now();
    if (first->first > now) {
      const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(first->first - now).count();
      return static_cast<int>(std::min<std::int64_t>(left_ms, 3600 * 1000));
    }
    Task task = std::move(first->second.second);
    timer_index_.erase(first->second.first);
    timers_.erase(first);
    task();
  }
  return -1;
}

void EventLoop::run_posted() {
  std::vector<Task> tasks;
  {
    MutexLock lock(mutex_);
    tasks.swap(posted_);
  }
  for (auto& task : tasks) task();
}

// Polls before it blocks if events follow each other quickly, because blocking and waking take longer than handling an
// event.
int EventLoop::wait_for_events(std::span<epoll_event> events, int timeout_ms) {
  const auto look = [&](int wait_ms) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms);
    ONESIDED_CHECK(count >= 0 || errno == EINTR, "epoll_wait: {}", std::strerror(errno));
    return count;
  };
  if (!eager_) return look(timeout_ms);
  auto now = Clock::now();
  if (lively_ && look_.worthwhile()) {
    int count = 0;
    for (const auto until = now + BriefLook::kLength; count <= 0 && now < until; now = Clock::now()) count = look(0);
    look_.ended(count > 0);
    if (count > 0) return count;
  }
  const int count = look(timeout_ms);
  lively_ = Clock::now() - now < BriefLook::kLength;
  return count;
}

// The caller holds it while it runs, because a handler may unwatch itself.
std::shared_ptr<EventLoop::Handler> EventLoop::handler_of(std::uint64_t serial) {
  MutexLock lock(mutex_);
  const auto found = watches_.find(static_cast<int>(serial & 0xffffffffu));
  return found == watches_.end() || found->second.serial != serial ? nullptr : found->second.handler;
}

void EventLoop::run() {
  {
    MutexLock lock(mutex_);
  }
  constexpr int kEvents = 64;
  epoll_event events[kEvents];
  while (true) {
    run_posted();
    const int timeout_ms = run_timers();
    {
      MutexLock lock(mutex_);
      if (stopping_ && posted_.empty()) return;
    }
    const int count = wait_for_events(events, timeout_ms);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kWakeSerial) {
        std::uint64_t drained = 0;
        [[maybe_unused]] const auto got = ::read(wake_.get(), &drained, sizeof drained);
        continue;
      }
      if (const auto handler = handler_of(events[i].data.u64)) (*handler)(events[i].events);
    }
  }
}

}  // namespace onesided
