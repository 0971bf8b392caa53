// Makes long calls interruptible by Ctrl-C.
#pragma once

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "interpreter_lock.h"
#include "onesided/engine/engine.h"

namespace onesided::python {

using TimeoutMs = Engine::TimeoutMs;

constexpr std::int64_t kSignalsMs = 200;  // how often a long wait checks for Ctrl-C

inline bool is_long(const TimeoutMs& timeout_ms) { return !timeout_ms || *timeout_ms > Engine::kDefaultTimeoutMs; }

// Runs a call of the engine. A call that may take long runs on a separate thread, so that Ctrl-C ends the wait; the
// call itself then continues until its own limit.
template <typename Call>
auto run_interruptibly(const TimeoutMs& timeout_ms, Call call) {
  if (!is_long(timeout_ms)) {
    const Unlocked unlocked;
    return call();
  }
  std::packaged_task<decltype(call())()> task(std::move(call));
  auto outcome = task.get_future();
  std::thread(std::move(task)).detach();
  while (true) {
    {
      const Unlocked unlocked;
      if (outcome.wait_for(std::chrono::milliseconds(kSignalsMs)) == std::future_status::ready) return outcome.get();
    }
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }
}

}  // namespace onesided::python
