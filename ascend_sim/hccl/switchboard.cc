#include "ascend_sim/hccl/switchboard.h"

#include <fmt/format.h>
#include <pthread.h>

#include "onesided/node/open_engine.h"

namespace onesided::sim::hccl {
namespace {

// Messages that came before their listener. More than this is an error of the sender's: the oldest go.
constexpr std::size_t kMaxEarly = 4096;

}  // namespace

Result<std::unique_ptr<Switchboard>> Switchboard::open(std::string_view address) {
  // Data between ranks of one host is read in place; what goes through the engine comes from elsewhere, or from memory
  // that is scattered over many files.
  auto engine = open_engine(address, {{"transports", "cma,tcp"}, {"auto_connect", "true"}, {"worker_threads", "1"}});
  if (!engine.ok()) return engine.error().with_context("HCCL: the engine of this process cannot start");
  return std::unique_ptr<Switchboard>(new Switchboard(std::move(engine).value()));
}

Switchboard::Switchboard(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {
  thread_ = std::thread([this] { run(); });
}

Switchboard::~Switchboard() {
  engine_->close();
  thread_.join();
}

void Switchboard::run() {
  ::pthread_setname_np(::pthread_self(), "hccl-messages");
  while (engine_->wait_notifies().ok()) {
    const auto arrived = engine_->get_notifies();
    if (!arrived.ok()) return;
    for (const Notification& notification : *arrived) deliver(notification);
  }
}

void Switchboard::deliver(const Notification& notification) {
  std::shared_ptr<Handler> handler;
  {
    MutexLock lock(mutex_);
    const auto found = handlers_.find(notification.name);
    if (found == handlers_.end()) {
      if (early_.size() == kMaxEarly) early_.pop_front();
      early_.push_back(notification);
      return;
    }
    handler = found->second;
    in_delivery_ = notification.name;
  }
  (*handler)(notification.message);
  MutexLock lock(mutex_);
  in_delivery_.clear();
  delivered_.notify_all();
}

void Switchboard::listen(const std::string& topic, Handler handler) {
  // Until the handler is listed, messages go to early_: those taken from there here come before all later ones.
  std::vector<Notification> early;
  auto shared = std::make_shared<Handler>(std::move(handler));
  while (true) {
    MutexLock lock(mutex_);
    for (auto at = early_.begin(); at != early_.end();) {
      if (at->name != topic) {
        ++at;
        continue;
      }
      early.push_back(std::move(*at));
      at = early_.erase(at);
    }
    if (early.empty()) {
      handlers_[topic] = shared;
      return;
    }
    lock.unlock();
    for (const Notification& notification : early) (*shared)(notification.message);
    early.clear();
  }
}

void Switchboard::ignore(const std::string& topic) {
  MutexLock lock(mutex_);
  handlers_.erase(topic);
  while (in_delivery_ == topic) delivered_.wait(lock);
}

Result<void> Switchboard::tell(std::string_view engine_id, std::string_view topic, std::string_view message,
                               std::int64_t timeout_ms) {
  return engine_->send_notify(engine_id, topic, message, timeout_ms);
}

}  // namespace onesided::sim::hccl
