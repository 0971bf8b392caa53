// A pool of registered host memory for received objects. A transfer into new pages runs at a tenth of the speed, and
// each new buffer would need a registration. The pool's segments are faulted in and registered once, and reused when
// the last tensor in them is freed.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "onesided/base/result.h"
#include "onesided/memory/pool.h"
#include "onesided/node/exchange/engine_port.h"
#include "onesided/node/pool_registration.h"

namespace onesided {

// Host memory that one engine has registered. Thread-safe. Blocks keep the pool alive, and the pool keeps the engine
// alive.
class ReceivePool : public std::enable_shared_from_this<ReceivePool> {
 public:
  // Start and length of every block are multiples of it.
  static constexpr std::uint64_t kAlignment = 4096;

  // A buffer, returned to the pool by its destructor. A movable value; any thread may destroy it.
  class Block {
   public:
    Block(std::shared_ptr<ReceivePool> pool, void* address, std::uint64_t nbytes)
        : pool_(std::move(pool)), address_(address), nbytes_(nbytes) {}
    Block(Block&& other) noexcept = default;
    Block& operator=(Block&&) = delete;
    ~Block();
    void* address() const { return address_; }
    std::uint64_t nbytes() const { return nbytes_; }

   private:
    std::shared_ptr<ReceivePool> pool_;  // none after a move
    void* address_ = nullptr;
    std::uint64_t nbytes_ = 0;
  };
  struct Counts {
    std::uint64_t segments = 0;       // currently registered
    std::uint64_t registrations = 0;  // in total
    std::uint64_t reserved_bytes = 0;
    std::uint64_t used_bytes = 0;
  };

  // max_bytes 0: no limit.
  static Result<std::shared_ptr<ReceivePool>> create(std::shared_ptr<EnginePort> engine, std::uint64_t max_bytes);

  // nbytes > 0. RESOURCE_EXHAUSTED with the pool's numbers. If a new segment is needed, unused ones are freed, so the
  // reserved bytes stay near the peak of the used bytes.
  Result<Block> allocate(std::uint64_t nbytes);
  // Frees segments without a block; returns the number of bytes freed.
  std::uint64_t trim();
  Counts counts();

 private:
  ReceivePool(std::shared_ptr<EnginePort> engine, std::unique_ptr<Pool> pool)
      : engine_(std::move(engine)), pool_(std::move(pool)) {}

  const std::shared_ptr<EnginePort> engine_;
  const std::unique_ptr<Pool> pool_;
  std::unique_ptr<PoolRegistration> registration_;
};

}  // namespace onesided
