// Pools announce segments and the engine registers memory; neither knows the other. This joins one pool to one
// engine: each segment is registered once, before the first block in it, and deregistered before it goes back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/memory/pool.h"

namespace onesided {

// What is needed of an engine. Both are called with no lock held, from threads that grow or trim the pool. `deregister`
// succeeds only when nobody uses the memory any more; NOT_FOUND and CLOSED count as that, after any other error it is
// called again later. Both may be called as long as the pool lives.
struct RegistrationCalls {
  std::function<Result<std::uint64_t>(std::uint64_t address, std::uint64_t nbytes, MemType type)> register_memory;
  std::function<Result<void>(std::uint64_t handle)> deregister_memory;
};

// The registrations of one pool's segments with one engine. Internally synchronized. The pool must outlive it.
class PoolRegistration {
 public:
  // Registers what is there before it returns. On failure everything is deregistered again.
  static Result<std::unique_ptr<PoolRegistration>> create(Pool& pool, RegistrationCalls calls);
  // Deregisters all segments and stops listening. A segment that could not be deregistered stays in the pool until it
  // can.
  ~PoolRegistration();
  PoolRegistration(const PoolRegistration&) = delete;
  PoolRegistration& operator=(const PoolRegistration&) = delete;

  std::uint64_t segments_registered() const;  // now
  std::uint64_t registrations_made() const;   // ever: does not move while tensors come and go
  // Segments that could not be registered, or not be deregistered when the pool wanted to give them back, since
  // create(). Tensors in the former cannot be transferred; the latter stay.
  std::vector<Error> failures() const;

 private:
  class Registrar;
  PoolRegistration(Pool& pool, std::shared_ptr<Registrar> registrar) : pool_(pool), registrar_(std::move(registrar)) {}

  Pool& pool_;
  const std::shared_ptr<Registrar> registrar_;
  SubscriptionId subscription_ = 0;
};

}  // namespace onesided
