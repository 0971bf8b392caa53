// The one list of this engine's registered memory: what peers may touch, what transfers may use locally, and what
// must not go away while bytes move.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/base/use_count.h"
#include "onesided/engine/region_files.h"
#include "onesided/engine/region_table.h"
#include "onesided/transport/transport.h"

namespace onesided {

// A registration, as register_mem hands it out. A value; names nothing in any other engine.
struct MemHandle {
  RegionKey key;
  std::uint64_t instance = 0;
  friend auto operator<=>(const MemHandle&, const MemHandle&) = default;
};

// Which device's memory an address is. The devices outlive the engine. A value.
struct MemoryDevices {
  Device* host = nullptr;
  // NOT_FOUND, saying why: no device runtime, or not its memory. Thread-safe.
  std::function<Result<Device*>(std::uint64_t address)> find_device;
};

// This engine's regions. Internally synchronized. Outlives every hold.
class Registry : public RegionAccess {
 public:
  static Result<std::unique_ptr<Registry>> create(std::uint64_t instance, MemoryDevices devices);

  struct Added {
    RegionKey key;
    bool fresh = false;  // false: the same range again, counted
    RegionDesc region;   // when fresh
  };
  // Rules: docs of Engine::register_mem.
  Result<Added> add(std::uint64_t address, std::uint64_t nbytes, MemType type);

  // Counts down; at zero the region is refused to all from then on, and `true` is returned: finish with drain().
  // NOT_FOUND: unknown or gone. A region that is being drained counts as zero (drain() it again).
  Result<bool> begin_remove(RegionKey key);
  // Blocks until nothing of this process uses the region, then forgets it. BUSY when the deadline passes: it stays
  // refused, and the handle stays good for another attempt. `leases_clear` asks the same of the peers' write leases;
  // `forget` is called, by one of several threads that drain, once nothing uses the region and before it is forgotten.
  Result<void> drain(RegionKey key, Deadline deadline, const std::function<bool(Deadline)>& leases_clear,
                     const std::function<void()>& forget);

  // The engine closes: refuses every region from now on. Which ones they were.
  std::vector<RegionKey> retire_all();

  // RegionAccess: for owners' sides of transports.
  Result<RegionHold> acquire(RegionKey key, std::uint64_t address, std::uint64_t nbytes, Op op) override;

  // Holds for the local side of a batch, with the lock taken once. Confined to one thread, short-lived.
  class LocalLookup {
   public:
    explicit LocalLookup(Registry& registry) ONESIDED_NO_TSA : registry_(registry), lock_(registry.mutex_) {}
    struct Found {
      RegionHold hold;  // empty when the region is the one found just before: that hold covers it
      Device* device = nullptr;
    };
    // The local side of `op`; always the same one. PARAM_INVALID: no region holds the whole range. UNSUPPORTED: a READ
    // into memory that is mapped read-only.
    Result<Found> hold(std::uint64_t address, std::uint64_t nbytes, Op op);

   private:
    Registry& registry_;
    MutexLock lock_;
    const void* last_ = nullptr;
    std::uint64_t last_address_ = 0, last_nbytes_ = 0;
    Device* last_device_ = nullptr;
  };

  // All live regions.
  std::vector<RegionDesc> snapshot();
  // The live region that holds the whole range, for describe(). PARAM_INVALID: none.
  Result<RegionDesc> describe(std::uint64_t address, std::uint64_t nbytes);
  const std::shared_ptr<RegionTable>& table() const { return table_; }
  RegionFiles& files() { return files_; }
  std::size_t live_regions();

 private:
  struct Slot {
    RegionDesc region;
    MemType type = MemType::kHost;
    Device* device = nullptr;      // null: the host may touch it
    std::uint32_t count = 0;       // registrations; 0: draining or free
    bool draining = false;         // refused, not forgotten yet
    bool forgetting = false;       // one of those who drain it does the rest
    std::optional<bool> writable;  // as found when something was first to be moved into it
    UseCount uses;
  };
  using ByAddress = std::map<std::uint64_t, Slot*>;
  Registry(std::shared_ptr<RegionTable> table, MemoryDevices devices)
      : table_(std::move(table)), devices_(std::move(devices)) {}
  Result<Device*> device_of(std::uint64_t address, std::uint64_t nbytes, MemType type);
  Result<Added> insert(const RegionDesc& region, MemType type, Device* device) ONESIDED_REQUIRES(mutex_);
  // The same range: counted, returned. No overlap: null. Any other overlap: an error.
  Result<Slot*> count_again(std::uint64_t address, std::uint64_t nbytes, MemType type) ONESIDED_REQUIRES(mutex_);
  Slot* holding(std::uint64_t address, std::uint64_t nbytes) ONESIDED_REQUIRES(mutex_);
  Slot* by_key(RegionKey key) ONESIDED_REQUIRES(mutex_);
  // UNSUPPORTED: mapped read-only.
  Result<void> check_writable(Slot& slot) ONESIDED_REQUIRES(mutex_);
  Error not_registered(std::uint64_t address, std::uint64_t nbytes) ONESIDED_REQUIRES(mutex_);

  const std::shared_ptr<RegionTable> table_;
  const MemoryDevices devices_;
  RegionFiles files_;
  Mutex mutex_;
  std::deque<Slot> slots_ ONESIDED_GUARDED_BY(mutex_);  // never shrinks: holds point into it
  std::vector<std::uint32_t> free_ ONESIDED_GUARDED_BY(mutex_);
  std::array<ByAddress, 2> by_address_ ONESIDED_GUARDED_BY(mutex_);  // by MemType
};

}  // namespace onesided
