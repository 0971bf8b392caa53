// Connects one pool to one engine, which have no other relation: each segment is registered once, before the first
// block in it is allocated, and deregistered before it is freed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/memory/pool.h"

namespace onesided {

// The calls needed from an engine. Both are called without a lock, on threads that grow or trim the pool. `deregister`
// succeeds only if no transfer uses the memory any more; NOT_FOUND and CLOSED count as success; after any other error
// it is called again later. Both may be called as long as the pool exists.
struct RegistrationCalls {
  std::function<Result<std::uint64_t>(std::uint64_t address, std::uint64_t nbytes, MemType type)> register_memory;
  std::function<Result<void>(std::uint64_t handle)> deregister_memory;
};

// The registrations of one pool's segments with one engine. Internally synchronized. The pool must outlive it.
class PoolRegistration {
 public:
  // Registers the existing segments before it returns. After a failure everything is deregistered again.
  static Result<std::unique_ptr<PoolRegistration>> create(Pool& pool, RegistrationCalls calls);
  // Deregisters all segments and unsubscribes. A segment that could not be deregistered remains in the pool until it
  // can.
  ~PoolRegistration();
  PoolRegistration(const PoolRegistration&) = delete;
  PoolRegistration& operator=(const PoolRegistration&) = delete;

  std::uint64_t segments_registered() const;  // current
  std::uint64_t registrations_made() const;   // in total; does not change when tensors are allocated or freed
  // Errors since create(): segments that could not be registered, whose tensors cannot be transferred, and segments
  // that could not be deregistered when the pool wanted to free them, which remain.
  std::vector<Error> failures() const;

 private:
  class Registrar;
  PoolRegistration(Pool& pool, std::shared_ptr<Registrar> registrar) : pool_(pool), registrar_(std::move(registrar)) {}

  Pool& pool_;
  const std::shared_ptr<Registrar> registrar_;
  SubscriptionId subscription_ = 0;
};

}  // namespace onesided
