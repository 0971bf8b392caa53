// Everything that ranks tell each other in words goes through one engine of the process: who takes part, and, between
// hosts, how far each one is. A message has a topic; whoever listens to it gets it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "onesided/base/clock.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/engine/engine.h"

namespace onesided::sim::hccl {

// Internally synchronized. Its thread calls the handlers, one after the other, under no lock.
class Switchboard {
 public:
  using Handler = std::function<void(std::string_view message)>;

  // `address`: "ip:port", port 0 for any.
  static Result<std::unique_ptr<Switchboard>> open(std::string_view address);
  ~Switchboard();

  Engine& engine() { return *engine_; }
  const std::string& id() const { return engine_->id(); }

  // Calls `handler` for each message of the topic, also for those that came before.
  void listen(const std::string& topic, Handler handler);
  // The handler is not called any more when this returns. Not from a handler.
  void ignore(const std::string& topic);
  // Returns when the other engine has the message; connects by itself.
  Result<void> tell(std::string_view engine_id, std::string_view topic, std::string_view message,
                    std::int64_t timeout_ms = 10'000);

 private:
  explicit Switchboard(std::unique_ptr<Engine> engine);
  void run();
  void deliver(const Notification& notification);

  const std::unique_ptr<Engine> engine_;
  Mutex mutex_;
  CondVar delivered_;
  std::map<std::string, std::shared_ptr<Handler>> handlers_ ONESIDED_GUARDED_BY(mutex_);
  std::deque<Notification> early_ ONESIDED_GUARDED_BY(mutex_);  // no listener yet
  std::string in_delivery_ ONESIDED_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace onesided::sim::hccl
