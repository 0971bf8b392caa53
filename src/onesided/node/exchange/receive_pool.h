// A transfer into fresh pages runs at a tenth of the speed, and each fresh buffer would have to be registered.
// Buffers for received objects come from one pool of shared host memory: its segments are faulted in and registered
// once, and handed out again when the last tensor in them dies.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "onesided/base/result.h"
#include "onesided/memory/pool.h"
#include "onesided/node/exchange/engine_port.h"
#include "onesided/node/pool_registration.h"

namespace onesided {

// Host memory that one engine has registered. Thread-safe. Blocks keep it alive, and it keeps the engine.
class ReceivePool : public std::enable_shared_from_this<ReceivePool> {
 public:
  // Start and length of every block are multiples of it.
  static constexpr std::uint64_t kAlignment = 4096;

  // A buffer; goes back to the pool when destroyed. A value that moves; any thread may destroy it.
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
    std::uint64_t segments = 0;       // registered now
    std::uint64_t registrations = 0;  // ever
    std::uint64_t reserved_bytes = 0;
    std::uint64_t used_bytes = 0;
  };

  // max_bytes 0: no limit of ours.
  static Result<std::shared_ptr<ReceivePool>> create(std::shared_ptr<EnginePort> engine, std::uint64_t max_bytes);

  // nbytes > 0. RESOURCE_EXHAUSTED with the pool's numbers. When it needs a new segment, unused ones go back to the
  // system: what is reserved stays near what was used at once.
  Result<Block> allocate(std::uint64_t nbytes);
  // Gives segments without a block back to the system; bytes given back.
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
