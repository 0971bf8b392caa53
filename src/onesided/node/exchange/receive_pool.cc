#include "onesided/node/exchange/receive_pool.h"

#include "onesided/node/host_pool.h"

namespace onesided {
namespace {

constexpr std::int64_t kDeregisterTimeoutMs = 10'000;
// A first small object should not fault in more than this.
constexpr std::uint64_t kSegmentBytes = 8 * kMiB;

}  // namespace

ReceivePool::Block::~Block() {
  if (!pool_) return;
  const auto freed = pool_->pool_->free(address_);
  ONESIDED_CHECK(freed.ok(), "a receive buffer was not its pool's: {}", freed.error().to_string());
}

Result<std::shared_ptr<ReceivePool>> ReceivePool::create(std::shared_ptr<EnginePort> engine, std::uint64_t max_bytes) {
  ONESIDED_TRY_ASSIGN(
      pool, create_host_pool({.alignment = kAlignment, .segment_bytes = kSegmentBytes, .max_bytes = max_bytes}));
  std::shared_ptr<ReceivePool> made(new ReceivePool(std::move(engine), std::move(pool)));
  EnginePort& port = *made->engine_;
  ONESIDED_TRY_ASSIGN(
      registration, PoolRegistration::create(
                        *made->pool_, {.register_memory =
                                           [&port](std::uint64_t address, std::uint64_t nbytes, MemType type) {
                                             return port.register_range({address, nbytes, type});
                                           },
                                       .deregister_memory = [&port](std::uint64_t handle) -> Result<void> {
                                         auto ended = port.deregister(handle, Deadline::after_ms(kDeregisterTimeoutMs));
                                         // A closed engine has forgotten the region.
                                         if (ended.status() == Status::kClosed) return {};
                                         return ended;
                                       }}));
  made->registration_ = std::move(registration);
  return made;
}

Result<ReceivePool::Block> ReceivePool::allocate(std::uint64_t nbytes) {
  ONESIDED_TRY_ASSIGN(allocation, pool_->allocate(nbytes));
  return Block(shared_from_this(), allocation.address, nbytes);
}

std::uint64_t ReceivePool::trim() { return pool_->trim(); }

ReceivePool::Counts ReceivePool::counts() {
  const PoolStats stats = pool_->stats();
  return {.segments = registration_->segments_registered(),
          .registrations = registration_->registrations_made(),
          .reserved_bytes = static_cast<std::uint64_t>(stats.reserved_bytes.current),
          .used_bytes = static_cast<std::uint64_t>(stats.allocated_bytes.current)};
}

}  // namespace onesided
