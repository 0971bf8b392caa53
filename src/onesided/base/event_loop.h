// The event loop that watches an engine's sockets, timers and processes on one thread, which sleeps while idle.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "onesided/base/brief_look.h"
#include "onesided/base/clock.h"
#include "onesided/base/fd.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"

namespace onesided {

// An epoll loop on a thread of its own. Any thread may call post(), in_loop(), change() and stop(); everything else,
// and all callbacks, run on the loop's thread.
class EventLoop {
 public:
  using Task = std::function<void()>;
  using Handler = std::function<void(std::uint32_t events)>;  // EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLERR
  using TimerId = std::uint64_t;                              // 0: no timer

  // RESOURCE_EXHAUSTED: no descriptor or thread available. `thread_name`: at most 15 characters. `eager`: if events
  // follow each other quickly, the thread polls briefly before it sleeps.
  static Result<std::unique_ptr<EventLoop>> create(const std::string& thread_name, bool eager = false);
  ~EventLoop();  // stop()

  // Runs the task soon, in the order of the calls. Tasks posted after stop() has begun are dropped.
  void post(Task task);
  bool in_loop() const { return std::this_thread::get_id() == thread_.get_id(); }
  // Runs the posted tasks, then ends the thread. Idempotent; must not be called on the loop's thread.
  void stop();

  // Watches a descriptor, level-triggered, until unwatch(), which must be called before the descriptor is closed.
  // Error: RESOURCE_EXHAUSTED.
  Result<void> watch(int fd, std::uint32_t events, Handler handler);
  // No-op if not watched.
  void change(int fd, std::uint32_t events);
  // The handler is not called again, not even for events that were already fetched. No-op if not watched.
  void unwatch(int fd);

  // Runs the task once, at or soon after the time.
  TimerId call_at(Clock::time_point when, Task task);
  void cancel(TimerId timer);

 private:
  struct Watch {
    std::uint64_t serial = 0;  // distinguishes a new watch of a reused descriptor number from events of the old one
    std::shared_ptr<Handler> handler;
  };

  EventLoop(Fd epoll, Fd wake, bool eager);
  void run();
  int wait_for_events(std::span<epoll_event> events, int timeout_ms);
  std::shared_ptr<Handler> handler_of(std::uint64_t serial);
  void run_posted();
  int run_timers();  // milliseconds until the next one, -1: none
  void wake();

  const Fd epoll_;
  const Fd wake_;
  const bool eager_;

  // Used on the loop's thread only.
  BriefLook look_;
  bool lively_ = false;  // the last sleep was shorter than a poll
  std::uint64_t serial_ = 0;
  std::multimap<Clock::time_point, std::pair<TimerId, Task>> timers_;
  std::unordered_map<TimerId, std::multimap<Clock::time_point, std::pair<TimerId, Task>>::iterator> timer_index_;
  TimerId next_timer_ = 1;

  Mutex mutex_;
  std::unordered_map<int, Watch> watches_ ONESIDED_GUARDED_BY(mutex_);
  std::vector<Task> posted_ ONESIDED_GUARDED_BY(mutex_);
  bool stopping_ ONESIDED_GUARDED_BY(mutex_) = false;

  std::thread thread_;  // set before the loop can call a callback
  Mutex join_mutex_;
};

}  // namespace onesided
