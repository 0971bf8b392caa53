#include "engine_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "onesided/base/log.h"
#include "onesided/node/open_engine.h"

namespace onesided::hixl_abi {

namespace {

constexpr std::size_t kMaxNotify = 1024;       // the vendor's limit for name and for message
constexpr std::int64_t kAutoConnectMs = 5000;  // for asynchronous transfers, which have no timeout of their own

// "ip:port" with a port above 0 listens there; without one, or at 0 or below, the vendor's engine does not listen. Ours
// always does, so it uses a port that is not announced.
std::string listening_address(const std::string& local_engine) {
  const auto colon = local_engine.rfind(':');
  const bool bare_v6 = local_engine.find(':') != colon && !local_engine.starts_with('[');
  const auto bracket = local_engine.rfind(']');
  if (colon == std::string::npos || bare_v6 || (bracket != std::string::npos && colon < bracket)) return local_engine;
  int port = 0;
  const char* end = local_engine.data() + local_engine.size();
  const auto parsed = std::from_chars(local_engine.data() + colon + 1, end, port);
  if (parsed.ec == std::errc() && parsed.ptr == end && port <= 0) return local_engine.substr(0, colon);
  return local_engine;
}

// All but the one that would load this library.
std::string own_transports() {
  auto names = known_transports();
  std::erase(names, "ascend");
  return fmt::format("{}", fmt::join(names, ","));
}

Error with_status(Status status, const Error& error) { return {status, error.text()}; }

}  // namespace

EngineCore::EngineCore(EngineOptions options, Driver driver, std::unique_ptr<Engine> engine)
    : options_(std::move(options)),
      driver_(driver),
      context_(driver.current_context()),
      engine_(std::move(engine)),
      memory_(*engine_, driver_),
      connections_(*engine_),
      asking_(*engine_, options_.staging_buffers, options_.staging_buffer_bytes),
      answering_(*engine_, options_.staging_buffers, options_.staging_buffer_bytes) {}

Result<std::shared_ptr<EngineCore>> EngineCore::create(const std::string& local_engine,
                                                       const std::map<std::string, std::string>& options) {
  ONESIDED_TRY_ASSIGN(parsed, EngineOptions::parse(options));
  const Driver driver = Driver::find();
  auto engine = open_engine(listening_address(local_engine), {{"transports", own_transports()}});
  if (!engine) return engine.error();
  std::shared_ptr<EngineCore> core(new EngineCore(std::move(parsed), driver, std::move(engine).value()));
  EngineCore* raw = core.get();
  const std::uint32_t answering = std::clamp(core->options_.staging_buffers, 1U, 4U) + 1;
  core->conversations_ = std::make_unique<Conversations>(
      *core->engine_, core->connections_, answering, [raw](const Control& question) { return raw->answer(question); });
  core->async_connects_ = std::make_unique<AsyncConnects>(
      core->options_.connect_threads, core->options_.connect_queue_capacity,
      [raw](AsyncConnects::Job job, const std::string& remote, std::int32_t timeout_ms) -> Result<void> {
        raw->driver_.enter_context(raw->context_);
        if (job == AsyncConnects::Job::kDisconnect) return raw->disconnect(remote);
        auto connected = raw->connect(remote, timeout_ms);
        if (!connected && connected.status() != Status::kAlreadyConnected) {
          log_line(LogLevel::kError, fmt::format("hixl: ConnectAsync({}): {}", remote, connected.error().to_string()));
          return connected;
        }
        return {};
      });
  return core;
}

EngineCore::~EngineCore() { close(); }

void EngineCore::close() {
  conversations_->refuse();
  engine_->close();
  async_connects_->stop();
  conversations_->stop();
}

Result<MemoryTable::Handle> EngineCore::register_mem(const Segment& segment) { return memory_.add(segment); }

Result<void> EngineCore::deregister_mem(MemoryTable::Handle handle) { return memory_.remove(handle); }

Result<void> EngineCore::connect(const std::string& remote, std::int32_t timeout_ms) {
  if (timeout_ms <= 0) return Error(Status::kParamInvalid, fmt::format("Connect: timeout {} ms", timeout_ms));
  return connect_until(remote, Deadline::after_ms(std::int64_t{timeout_ms}));
}

Result<void> EngineCore::connect_until(const std::string& remote, Deadline deadline) {
  {
    MutexLock lock(mutex_);
    while (connecting_.contains(remote))
      if (!connected_.wait(lock, deadline) && connecting_.contains(remote))
        return Error(Status::kTimeout, fmt::format("another thread is still connecting to {}", remote));
    connecting_.insert(remote);
  }
  auto result = connect_alone(remote, deadline);
  MutexLock lock(mutex_);
  connecting_.erase(remote);
  connected_.notify_all();
  return result;
}

Result<void> EngineCore::connect_alone(const std::string& remote, Deadline deadline) {
  ONESIDED_TRY(memory_.check_shareable());
  const auto opened = connections_.open(remote, deadline);
  // The vendor's API has no separate code for "no listener".
  if (!opened)
    return opened.status() == Status::kNotConnected ? with_status(Status::kFailed, opened.error()) : opened.error();
  if (!*opened) return Error(Status::kAlreadyConnected, fmt::format("already connected to {}", remote));
  auto view = hello(remote, deadline);
  if (!view) {
    (void)connections_.close(remote);
    return view.error();
  }
  MutexLock lock(mutex_);
  views_[remote] = *view;
  return {};
}

Result<std::shared_ptr<const EngineCore::View>> EngineCore::hello(const std::string& remote, Deadline deadline) {
  ONESIDED_TRY_ASSIGN(reply, conversations_->ask(remote, Hello{}, deadline));
  if (reply.status != Status::kSuccess)
    return Error(reply.status, fmt::format("{} cannot be connected to: {}", remote, reply.text));
  auto view = std::make_shared<View>();
  for (const Segment& segment : reply.segments) view->segments.insert(segment);
  view->staging = reply.staging;
  return std::shared_ptr<const View>(std::move(view));
}

Result<void> EngineCore::disconnect(const std::string& remote) {
  {
    MutexLock lock(mutex_);
    views_.erase(remote);
  }
  return connections_.close(remote);
}

Result<std::shared_ptr<const EngineCore::View>> EngineCore::view_of(const std::string& remote, Deadline deadline) {
  {
    MutexLock lock(mutex_);
    if (const auto found = views_.find(remote); found != views_.end()) return found->second;
  }
  if (!options_.auto_connect)
    return Error(Status::kNotConnected, fmt::format("not connected to {}; call Connect first", remote));
  auto connected = connect_until(remote, deadline);
  if (!connected && connected.status() != Status::kAlreadyConnected) return connected.error();
  MutexLock lock(mutex_);
  if (const auto found = views_.find(remote); found != views_.end()) return found->second;
  return Error(Status::kNotConnected, fmt::format("another thread has just disconnected from {}", remote));
}

// Cuts the items at the borders of registrations; those that must be staged are staged only where both sides do that.
Result<SplitItems> EngineCore::split(const std::string& remote, std::span<const Item> items, Deadline deadline) {
  ONESIDED_TRY_ASSIGN(view, view_of(remote, deadline));
  const auto local = memory_.snapshot();
  ONESIDED_TRY_ASSIGN(split, split_items(items, *local, view->segments));
  if (split.staged.empty() || (asking_.any() && view->staging)) return split;
  if (options_.auto_connect) {
    // The remote may have registered memory since; this engine connects by itself, so it also looks anew by itself.
    ONESIDED_TRY_ASSIGN(newer, hello(remote, deadline));
    {
      MutexLock lock(mutex_);
      views_[remote] = newer;
    }
    ONESIDED_TRY_ASSIGN(again, split_items(items, *local, newer->segments));
    if (again.staged.empty()) return again;
    split = std::move(again);
    view = newer;
  }
  const Item& first = split.staged.front();
  const bool here = local->covers(first.local, first.nbytes);
  return Error(Status::kParamInvalid,
               fmt::format("[{:#x}, {:#x}) is not registered {}; register it{}, or give both sides a BufferPool",
                           here ? first.remote : first.local, (here ? first.remote : first.local) + first.nbytes,
                           here ? fmt::format("at {} (as of Connect)", remote) : "here",
                           here ? " there and connect again" : ""));
}

void EngineCore::note_lost(const std::string& remote, const Error& error) {
  if (error.status() != Status::kPeerLost && error.status() != Status::kNotConnected) return;
  // The next Connect must be a new one.
  (void)disconnect(remote);
}

Result<void> EngineCore::transfer_sync(const std::string& remote, Direction direction, std::span<const Item> items,
                                       std::int32_t timeout_ms) {
  if (timeout_ms <= 0) return Error(Status::kParamInvalid, fmt::format("TransferSync: timeout {} ms", timeout_ms));
  const Deadline deadline = Deadline::after_ms(std::int64_t{timeout_ms});
  ONESIDED_TRY_ASSIGN(split, this->split(remote, items, deadline));
  Result<void> done;
  if (!split.direct.empty()) {
    const Op op = direction == Direction::kRead ? Op::kRead : Op::kWrite;
    done = engine_->transfer_sync(remote, op, TransferList{.items = split.direct},
                                  std::max(deadline.poll_timeout_ms(), 1));
  }
  if (done && !split.staged.empty())
    done = stage_transfer(asking_, *conversations_, remote, direction, split.staged, deadline);
  if (!done) {
    note_lost(remote, done.error());
    // The program was connected when it called; what happened since is a failure of this transfer.
    if (done.status() == Status::kNotConnected) return with_status(Status::kFailed, done.error());
  }
  return done;
}

Result<std::uint64_t> EngineCore::transfer_async(const std::string& remote, Direction direction,
                                                 std::span<const Item> items) {
  ONESIDED_TRY_ASSIGN(split, this->split(remote, items, Deadline::after_ms(kAutoConnectMs)));
  if (!split.staged.empty())
    return Error(Status::kUnsupported, "TransferAsync: memory that is not registered is staged by TransferSync only");
  const Op op = direction == Direction::kRead ? Op::kRead : Op::kWrite;
  auto transfer = engine_->transfer_async(remote, op, TransferList{.items = split.direct});
  if (!transfer) {
    note_lost(remote, transfer.error());
    return transfer.error();
  }
  auto request = std::make_shared<Request>();
  request->remote = remote;
  request->transfer = std::move(transfer).value();
  return requests_.add(std::move(request));
}

Result<Progress> EngineCore::transfer_status(std::uint64_t handle) {
  const Error unknown(Status::kParamInvalid, "GetTransferStatus: no such request, or its end has been told");
  const auto request = requests_.find(handle);
  if (!request) return unknown;
  const TransferStatus status = request->transfer->status();
  if (status == TransferStatus::kWaiting) return Progress::kWaiting;
  if (!requests_.retire(handle)) return unknown;
  if (status == TransferStatus::kCompleted) return Progress::kCompleted;
  if (const auto error = request->transfer->error()) {
    log_line(LogLevel::kError, fmt::format("hixl: transfer with {}: {}", request->remote, error->to_string()));
    note_lost(request->remote, *error);
  }
  return status == TransferStatus::kTimeout ? Progress::kTimeout : Progress::kFailed;
}

Result<void> EngineCore::send_notify(const std::string& remote, const Notification& notification,
                                     std::int32_t timeout_ms) {
  if (timeout_ms <= 0) return Error(Status::kParamInvalid, fmt::format("SendNotify: timeout {} ms", timeout_ms));
  if (notification.name.size() > kMaxNotify || notification.message.size() > kMaxNotify)
    return Error(Status::kParamInvalid,
                 fmt::format("SendNotify: name ({} bytes) and message ({} bytes) may have {} each",
                             notification.name.size(), notification.message.size(), kMaxNotify));
  if (notification.name == kControlName) return Error(Status::kParamInvalid, "SendNotify: this name is reserved");
  const Deadline deadline = Deadline::after_ms(std::int64_t{timeout_ms});
  ONESIDED_TRY_ASSIGN(view, view_of(remote, deadline));
  auto sent =
      engine_->send_notify(remote, notification.name, notification.message, std::max(deadline.poll_timeout_ms(), 1));
  if (!sent) note_lost(remote, sent.error());
  return sent;
}

Control EngineCore::answer(const Control& question) {
  driver_.enter_context(context_);
  if (const auto* request = std::get_if<StageRequest>(&question)) return stage_answer(*engine_, answering_, *request);
  HelloReply reply;
  reply.tag = std::get<Hello>(question).tag;
  reply.staging = answering_.any();
  if (const auto shareable = memory_.check_shareable(); !shareable) {
    reply.status = shareable.status();
    const std::string words = driver_.take_words();
    reply.text = shareable.error().text() + (words.empty() ? "" : "; its driver: " + words);
    return reply;
  }
  reply.segments = memory_.snapshot()->all();
  return reply;
}

}  // namespace onesided::hixl_abi
