#include "onesided/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "onesided/base/log.h"
#include "onesided/engine/engine_core.h"

namespace onesided {
namespace {

Error closed() { return {Status::kClosed, "the engine is closed, or this is a forked child of its process"}; }

// A write in progress ends within one piece. close() waits at most this long for a peer that is suspended during a
// write.
constexpr std::int64_t kCloseLeasesMs = 1000;

std::uint32_t default_workers() { return std::max(2U, std::thread::hardware_concurrency()) - 1; }

}  // namespace

Engine::Engine(std::unique_ptr<Core> core) : core_(std::move(core)) {}

Engine::~Engine() {
  close();
  // A forked child has the memory but not the threads; destroying the objects that the threads used could block for
  // ever.
  if (!core_->process.same_process()) (void)core_.release();
}

Result<std::unique_ptr<Engine>> Engine::create(std::string_view local_engine, const EngineOptions& options,
                                               EngineParts parts) {
  auto core = std::make_unique<Core>();
  core->options = options;
  SessionOptions sessions;
  sessions.local_engine = std::string(local_engine);
  sessions.tcp_streams = options.tcp_streams;
  sessions.heartbeat_ms = options.heartbeat_ms;
  if (!options.auth_secret_file.empty()) {
    ONESIDED_TRY_ASSIGN(secret, read_secret_file(options.auth_secret_file));
    sessions.secret = std::move(secret);
  }
  InstanceId proof = InstanceId::random();
  std::uint64_t proof_number = 0;
  std::copy_n(proof.bytes.begin(), sizeof(proof_number), reinterpret_cast<std::uint8_t*>(&proof_number));
  ONESIDED_TRY_ASSIGN(registry, Registry::create(proof_number, parts.devices));
  core->registry = std::move(registry);
  std::vector<Transport*> transports;
  for (const auto& name : options.transports) {
    const auto made = std::find_if(parts.transports.begin(), parts.transports.end(),
                                   [&](const auto& entry) { return entry.first == name; });
    if (made == parts.transports.end())
      return Error(Status::kUnsupported, fmt::format("this build has no transport \"{}\"", name));
    ONESIDED_TRY_ASSIGN(transport, made->second(options, *core->registry));
    transports.push_back(transport.get());
    core->transports.push_back(std::move(transport));
    sessions.transports.push_back(name);
  }
  ONESIDED_TRY_ASSIGN(workers, Workers::create(options.worker_threads ? options.worker_threads : default_workers()));
  core->workers = std::move(workers);
  core->connections = std::make_unique<Connections>(*core->registry, core->notifies, std::move(transports));
  ONESIDED_TRY(core->connections->start(std::move(sessions), std::move(parts.self_link)));
  return std::unique_ptr<Engine>(new Engine(std::move(core)));
}

const std::string& Engine::id() const { return core_->connections->engine_id(); }

Result<void> Engine::enter() const {
  if (core_->process.same_process() && !core_->closed.load(std::memory_order_acquire)) [[likely]]
    return {};
  return closed();
}

Result<Deadline> Engine::deadline_of(TimeoutMs timeout_ms) {
  if (!timeout_ms) return Deadline::never();
  if (*timeout_ms <= 0)
    return Error(Status::kParamInvalid,
                 fmt::format("timeout_ms={}: must be greater than 0; None (std::nullopt in C++) waits without limit",
                             *timeout_ms));
  return Deadline::after_ms(*timeout_ms);
}

void Engine::close() {
  if (!core_->process.same_process()) {
    core_->closed = true;  // its sockets were closed by the fork
    return;
  }
  MutexLock lock(core_->close_mutex);
  if (core_->closed.exchange(true)) return;
  core_->notifies.close();
  // Peers on this host copy without asking this engine. So first all regions are retired, then their writes are waited
  // for.
  const auto keys = core_->registry->retire_all();
  const auto deadline = Deadline::after_ms(kCloseLeasesMs);
  for (const auto& key : keys)
    if (!core_->connections->inbound().leases_clear(key, deadline))
      log_line(LogLevel::kWarn,
               fmt::format("{} closes while a suspended peer may still be writing into its memory", id()));
  core_->connections->close();
  core_->connects.close();
  for (const auto& transport : core_->transports) transport->stop();
  core_->workers->stop();
}

Result<MemHandle> Engine::register_mem(std::uint64_t address, std::uint64_t nbytes, MemType type) {
  ONESIDED_TRY(enter());
  auto added = core_->registry->add(address, nbytes, type);
  if (!added.ok()) return added.error().with_context("register_mem");
  if (added->fresh) {
    for (const auto& transport : core_->transports) transport->memory_registered(added->region);
    core_->connections->inbound().added(added->region);
  }
  return MemHandle{added->key, core_->registry->table()->instance()};
}

Result<void> Engine::deregister_mem(const MemHandle& handle, TimeoutMs timeout_ms) {
  ONESIDED_TRY(enter());
  ONESIDED_TRY_ASSIGN(deadline, deadline_of(timeout_ms));
  if (handle.instance != core_->registry->table()->instance())
    return Error(Status::kNotFound, "deregister_mem: the handle belongs to another engine");
  auto last = core_->registry->begin_remove(handle.key);
  if (!last.ok()) return last.error().with_context("deregister_mem");
  if (!*last) return {};
  auto& inbound = core_->connections->inbound();
  inbound.dropped(handle.key);
  auto drained = core_->registry->drain(
      handle.key, deadline, [&](Deadline until) { return inbound.leases_clear(handle.key, until); },
      [&] {
        for (const auto& transport : core_->transports) transport->memory_dropped(handle.key);
      });
  return drained.ok() ? drained : drained.error().with_context("deregister_mem");
}

Result<void> Engine::connect(std::string_view remote_id, TimeoutMs timeout_ms) {
  ONESIDED_TRY(enter());
  ONESIDED_TRY_ASSIGN(deadline, deadline_of(timeout_ms));
  auto connected = core_->connections->connect(remote_id, deadline);
  return connected.ok() ? connected : connected.error().with_context("connect");
}

Result<void> Engine::disconnect(std::string_view remote_id) {
  ONESIDED_TRY(enter());
  auto disconnected = core_->connections->disconnect(remote_id);
  return disconnected.ok() ? disconnected : disconnected.error().with_context("disconnect");
}

Result<void> Engine::connect_async(std::string_view remote_id, TimeoutMs timeout_ms) {
  ONESIDED_TRY(enter());
  ONESIDED_TRY(deadline_of(timeout_ms));
  // The timeout starts when the operation starts.
  return core_->connects.add(remote_id, [core = core_.get(), id = std::string(remote_id), timeout_ms] {
    return core->connections->connect(id, Deadline::after_ms(timeout_ms));
  });
}

Result<void> Engine::disconnect_async(std::string_view remote_id) {
  ONESIDED_TRY(enter());
  return core_->connects.add(
      remote_id, [core = core_.get(), id = std::string(remote_id)] { return core->connections->disconnect(id); });
}

Result<ConnectQueue::Outcome> Engine::async_connect_outcome(std::string_view remote_id) {
  ONESIDED_TRY(enter());
  return core_->connects.outcome(remote_id);
}

Result<std::vector<std::uint8_t>> Engine::describe(std::span<const std::pair<std::uint64_t, std::uint64_t>> ranges) {
  ONESIDED_TRY(enter());
  if (ranges.empty()) return Error(Status::kParamInvalid, "describe: the list of ranges is empty");
  Description description;
  description.engine_id = id();
  description.instance = core_->connections->instance();
  description.items.reserve(ranges.size());
  for (const auto& [address, nbytes] : ranges) {
    if (address == 0 || nbytes == 0 || !checked_add(address, nbytes))
      return Error(Status::kParamInvalid, fmt::format("describe: {:#x} + {} bytes is not a range", address, nbytes));
    auto region = core_->registry->describe(address, nbytes);
    if (!region.ok()) return region.error().with_context("describe");
    description.items.push_back({region->key, address, nbytes, region->device});
  }
  return encode_description(description);
}

Result<RemoteRegions> Engine::import_desc(std::span<const std::uint8_t> blob) {
  ONESIDED_TRY(enter());
  auto regions = RemoteRegions::decode(blob);
  return regions.ok() ? std::move(regions) : regions.error().with_context("import_desc");
}

Result<std::shared_ptr<const PreparedList>> Engine::prepare_local(std::span<const PreparedList::Address> ranges) {
  ONESIDED_TRY(enter());
  return PreparedList::local(*core_->registry, core_->connections->instance(), ranges);
}

Result<std::shared_ptr<const PreparedList>> Engine::prepare_remote(std::string_view remote_id,
                                                                   std::span<const PreparedList::Address> ranges,
                                                                   TimeoutMs timeout_ms) {
  ONESIDED_TRY(enter());
  ONESIDED_TRY_ASSIGN(deadline, deadline_of(timeout_ms));
  ONESIDED_TRY_ASSIGN(use, core_->connections->use(remote_id, core_->options.auto_connect, deadline));
  return PreparedList::remote(*use, ranges, deadline);
}

Result<std::shared_ptr<const PreparedList>> Engine::prepare_remote(const RemoteRegions& described,
                                                                   std::span<const PreparedList::Address> ranges) {
  ONESIDED_TRY(enter());
  return PreparedList::remote(described, ranges);
}

Result<void> Engine::send_notify(std::string_view remote_id, std::string_view name, std::string_view message,
                                 TimeoutMs timeout_ms) {
  ONESIDED_TRY(enter());
  ONESIDED_TRY_ASSIGN(deadline, deadline_of(timeout_ms));
  if (name.size() + message.size() > kMaxNotifyBytes)
    return Error(Status::kParamInvalid, fmt::format("send_notify: name and message have {} bytes; the limit is {}",
                                                    name.size() + message.size(), kMaxNotifyBytes));
  ONESIDED_TRY_ASSIGN(peer, core_->connections->use(remote_id, core_->options.auto_connect, deadline));
  if (peer->is_self()) {
    if (core_->notifies.push(std::string(name), std::string(message)) == Status::kSuccess) return {};
    return Error(Status::kNotifyFailed, "send_notify: this engine's own queue is full; call get_notifies()");
  }
  return peer->send_notify(name, message, deadline);
}

Result<std::vector<Notification>> Engine::get_notifies() {
  ONESIDED_TRY(enter());
  return core_->notifies.drain();
}

Result<void> Engine::wait_notifies(TimeoutMs timeout_ms) {
  ONESIDED_TRY(enter());
  ONESIDED_TRY_ASSIGN(deadline, deadline_of(timeout_ms));
  if (core_->notifies.wait(deadline)) return enter();
  return Error(Status::kTimeout, "wait_notifies: no notification arrived within the timeout");
}

Result<std::int64_t> Engine::capability(std::string_view name) {
  ONESIDED_TRY(enter());
  const std::map<std::string_view, std::int64_t> known = {
      {"DYNAMIC_REGISTRATION", 1},
      {"AUTO_CONNECT", core_->options.auto_connect ? 1 : 0},
      {"CLIENT_SERVER_COMM", 1},
      {"CANCEL", 1},
      {"PER_ITEM_RESULTS", 1},
      {"MAX_NOTIFY_BYTES", static_cast<std::int64_t>(kMaxNotifyBytes)},
      {"MAX_REGIONS", RegionTable::kCapacity},
      {"REGISTRATION_ALIGNMENT", static_cast<std::int64_t>(kAscendPageBytes)},
  };
  if (const auto at = known.find(name); at != known.end()) return at->second;
  std::string names;
  for (const auto& [known_name, value] : known) names += fmt::format("{}{}", names.empty() ? "" : ", ", known_name);
  return Error(Status::kParamInvalid, fmt::format("unknown capability \"{}\"; known: {}", name, names));
}

Result<Engine::Stats> Engine::stats() {
  ONESIDED_TRY(enter());
  Stats stats;
  stats.id = id();
  stats.regions = core_->registry->live_regions();
  stats.guests = core_->connections->inbound().count();
  stats.outstanding = core_->outstanding.count();
  stats.workers = core_->workers->size();
  for (const auto& transport : core_->transports)
    stats.transports.emplace_back(std::string(transport->name()), transport->settings());
  stats.peers = core_->connections->stats();
  return stats;
}

}  // namespace onesided
