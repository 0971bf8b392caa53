#include "onesided/node/exchange/receive_pool.h"

#include "onesided/node/host_pool.h"

namespace onesided {
namespace {

constexpr std::int64_t kDeregisterTimeoutMs = 10'000;
// The first small object should not allocate more pages than this.
constexpr std::uint64_t kSegmentBytes = 8 * kMiB;

}  // namespace

ReceivePool::Block::~Block() {
  if (!pool_) return;
  const auto freed = pool_->pool_->free(address_);
  ONESIDED_CHECK(freed.ok(), "a receive buffer does not belong to its pool: {}", freed.error().to_string());
}

Result<std::shared_ptr<ReceivePool>> ReceivePool::create(std::shared_ptr<EnginePort> engine, std::uint64_t max_bytes) {
  ONESIDED_TRY_ASSIGN(
      pool, create_host_pool({.alignment = kAlignment, .segment_bytes = kSegmentBytes, .max_bytes = max_bytes}));
  std::shared_ptr<ReceivePool> made(new ReceivePool(std::move(engine), std::move(pool)));
  EnginePort& port = *made->engine_;
  ONESIDED_TRY_ASSIGN(registration,
                      PoolRegistration::create(
                          *made->pool_, {.register_memory =
                                             [&port](std::uint64_t address, std::uint64_t nbytes, MemType type) {
                                               return port.register_range({address, nbytes, type});
                                             },
                                         .deregister_memory =
                                             [&port](std::uint64_t handle) {
                                               return port.deregister(handle, Deadline::after_ms(kDeregisterTimeoutMs));
                                             }}));
  made->registration_ = std::move(registration);
  return made;
}

Result<ReceivePool::Block> ReceivePool::allocate(std::uint64_t nbytes) {
  const std::uint64_t segments_before = registration_->registrations_made();
  ONESIDED_TRY_ASSIGN(allocation, pool_->allocate(nbytes));
  // The pool grew because no free segment was large enough. Without a trim, objects of many sizes would leave one
  // segment for each size.
  if (registration_->registrations_made() != segments_before) pool_->trim();
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
