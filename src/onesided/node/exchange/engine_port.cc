#include "onesided/node/exchange/engine_port.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "onesided/engine/engine.h"

namespace onesided {
namespace {

static_assert(sizeof(RegionKey) == sizeof(std::uint64_t));

std::uint64_t to_number(const MemHandle& handle) {
  return std::uint64_t{handle.key.generation} << 32 |
         handle.key.index;  // generation 0 is never used, so the number is never 0
}

// Milliseconds left; the engine refuses 0.
Engine::TimeoutMs timeout_of(Deadline deadline) {
  if (deadline.is_never()) return std::nullopt;
  return std::max(deadline.poll_timeout_ms(), 1);
}

// A Transfer of the engine. Thread-safe, as that is.
class EngineReading : public Reading {
 public:
  explicit EngineReading(std::shared_ptr<Transfer> transfer) : transfer_(std::move(transfer)) {}
  ~EngineReading() override { transfer_->cancel(); }

  std::optional<Result<void>> wait(Deadline deadline) override {
    const auto ended = transfer_->wait(deadline);
    if (!ended) return std::nullopt;
    if (*ended == TransferStatus::kCompleted) return Result<void>();
    return Result<void>(transfer_->error().value_or(Error{Status::kFailed, "the transfer ended without an error"}));
  }
  void cancel() override { transfer_->cancel(); }

 private:
  const std::shared_ptr<Transfer> transfer_;
};

// Thread-safe, as the engine is.
class RealEnginePort : public EnginePort {
 public:
  explicit RealEnginePort(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  Result<std::uint64_t> register_range(const MemRange& range) override {
    ONESIDED_TRY_ASSIGN(handle, engine_->register_mem(range.address, range.nbytes, range.type));
    instance_.store(handle.instance, std::memory_order_relaxed);  // the same for all handles of one engine
    version_.fetch_add(1, std::memory_order_relaxed);
    return to_number(handle);
  }
  Result<void> deregister(std::uint64_t number, Deadline deadline) override {
    const MemHandle handle{
        .key = {.index = static_cast<std::uint32_t>(number), .generation = static_cast<std::uint32_t>(number >> 32)},
        .instance = instance_.load(std::memory_order_relaxed)};
    version_.fetch_add(1, std::memory_order_relaxed);
    auto ended = engine_->deregister_mem(handle, timeout_of(deadline));
    if (ended.status() == Status::kClosed) return {};
    return ended;
  }
  bool covers(const MemRange& range) override {
    const std::pair<std::uint64_t, std::uint64_t> one{range.address, range.nbytes};
    return engine_->describe({&one, 1}).ok();
  }
  Result<std::string> describe(std::span<const MemRange> ranges) override {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs;
    pairs.reserve(ranges.size());
    for (const MemRange& range : ranges) pairs.emplace_back(range.address, range.nbytes);
    ONESIDED_TRY_ASSIGN(blob, engine_->describe(pairs));
    return std::string(blob.begin(), blob.end());
  }
  std::uint64_t regions_version() override { return version_.load(std::memory_order_relaxed); }

  Result<void> connect(const std::string& remote, Deadline deadline) override {
    auto connected = engine_->connect(remote, timeout_of(deadline));
    if (connected.status() == Status::kAlreadyConnected) return {};
    return connected;
  }
  void disconnect(const std::string& remote) override {
    // NOT_CONNECTED: the peer disconnected first. In both cases there is no connection now.
    static_cast<void>(engine_->disconnect(remote));
  }
  bool sees_new_regions() override {
    const auto dynamic = engine_->capability("DYNAMIC_REGISTRATION");
    return dynamic.ok() && *dynamic == 1;
  }
  Result<std::unique_ptr<Reading>> read(const std::string& remote, const std::string& desc, std::vector<ReadItem> items,
                                        std::optional<std::int64_t> timeout_ms) override {
    ONESIDED_TRY_ASSIGN(regions,
                        engine_->import_desc({reinterpret_cast<const std::uint8_t*>(desc.data()), desc.size()}));
    BoundItems bound{.instance = regions.instance(), .items = {}, .keys = {}};
    bound.items.reserve(items.size());
    bound.keys.reserve(items.size());
    for (const ReadItem& item : items)
      ONESIDED_TRY(
          regions.bind({.local = item.local, .item = item.item, .offset = item.offset, .nbytes = item.nbytes}, bound));
    ONESIDED_TRY_ASSIGN(transfer, engine_->transfer_async(remote, Op::kRead, bound.list(), timeout_ms));
    // The transfer was refused completely before a byte moved: returned as an error of this call, so that the caller
    // may reconnect and try again.
    if (transfer->status() == TransferStatus::kFailed && transfer->bytes_done() == 0)
      if (auto error = transfer->error(); error && error->status() == Status::kStale) return *std::move(error);
    return std::unique_ptr<Reading>(std::make_unique<EngineReading>(std::move(transfer)));
  }
  bool connected_to_maker(const std::string& remote, const std::string& desc) override {
    const auto regions = engine_->import_desc({reinterpret_cast<const std::uint8_t*>(desc.data()), desc.size()});
    const auto stats = engine_->stats();
    if (!regions.ok() || !stats.ok()) return false;
    const auto peer = std::ranges::find(stats->peers, remote, &std::pair<std::string, Peer::Stats>::first);
    return peer != stats->peers.end() && peer->second.instance == regions->instance();
  }

 private:
  const std::shared_ptr<Engine> engine_;
  std::atomic<std::uint64_t> instance_{0};
  std::atomic<std::uint64_t> version_{0};
};

}  // namespace

std::shared_ptr<EnginePort> make_engine_port(std::shared_ptr<Engine> engine) {
  return std::make_shared<RealEnginePort>(std::move(engine));
}

}  // namespace onesided
