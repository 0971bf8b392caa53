// The list of this engine's registered memory: the memory that peers may access, that transfers may use locally, and
// that must stay registered while bytes move.
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

// A registration, as returned by register_mem. A value, meaningful in this engine only.
struct MemHandle {
  RegionKey key;
  std::uint64_t instance = 0;
  friend auto operator<=>(const MemHandle&, const MemHandle&) = default;
};

// Finds the device that an address belongs to. The devices outlive the engine. A value.
struct MemoryDevices {
  Device* host = nullptr;
  // NOT_FOUND, with the reason: no device runtime, or not its memory. Thread-safe.
  std::function<Result<Device*>(std::uint64_t address)> find_device;
};

// This engine's regions. Internally synchronized. Must outlive every hold.
class Registry : public RegionAccess {
 public:
  static Result<std::unique_ptr<Registry>> create(std::uint64_t instance, MemoryDevices devices);

  struct Added {
    RegionKey key;
    bool fresh = false;  // false: the same range again, counted
    RegionDesc region;   // when fresh
  };
  // See Engine::register_mem().
  Result<Added> add(std::uint64_t address, std::uint64_t nbytes, MemType type);

  // Decrements the count. At zero the region accepts no new transfers and `true` is returned: finish with drain(). A
  // region that is being drained counts as zero (call drain() again). NOT_FOUND: unknown or removed.
  Result<bool> begin_remove(RegionKey key);
  // Blocks until no transfer of this process uses the region, then removes it. BUSY if the deadline passes: the region
  // accepts no new transfers, and the handle remains valid for another attempt. `leases_clear` waits for the peers'
  // write leases. `forget` is called once, by one of the draining threads, when the region is unused and before it is
  // removed.
  Result<void> drain(RegionKey key, Deadline deadline, const std::function<bool(Deadline)>& leases_clear,
                     const std::function<void()>& forget);

  // Retires every region, because the engine closes. Returns their keys.
  std::vector<RegionKey> retire_all();

  // RegionAccess, for the owner's side of transports.
  Result<RegionHold> acquire(RegionKey key, std::uint64_t address, std::uint64_t nbytes, Op op) override;

  // Holds for the local side of a batch, with one acquisition of the lock. Confined to one thread, short-lived.
  class LocalLookup {
   public:
    explicit LocalLookup(Registry& registry) ONESIDED_NO_TSA : registry_(registry), lock_(registry.mutex_) {}
    struct Found {
      RegionHold hold;  // empty if the region is the one found before: that hold covers it
      Device* device = nullptr;
    };
    // Finds and holds the local range of `op`; `op` is the same in every call. PARAM_INVALID: no region contains the
    // whole range. UNSUPPORTED: a READ into memory that is mapped read-only.
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
  // The live region that contains the whole range, for describe(). PARAM_INVALID: none.
  Result<RegionDesc> describe(std::uint64_t address, std::uint64_t nbytes);
  const std::shared_ptr<RegionTable>& table() const { return table_; }
  RegionFiles& files() { return files_; }
  std::size_t live_regions();

 private:
  struct Slot {
    RegionDesc region;
    MemType type = MemType::kHost;
    Device* device = nullptr;      // null: memory that the host can access
    std::uint32_t count = 0;       // registrations; 0: draining or free
    bool draining = false;         // accepts no transfers, not removed yet
    bool forgetting = false;       // one of the draining threads removes it
    std::optional<bool> writable;  // found at the first move into it
    UseCount uses;
  };
  using ByAddress = std::map<std::uint64_t, Slot*>;
  Registry(std::shared_ptr<RegionTable> table, MemoryDevices devices)
      : table_(std::move(table)), devices_(std::move(devices)) {}
  Result<Device*> device_of(std::uint64_t address, std::uint64_t nbytes, MemType type);
  Result<Added> insert(const RegionDesc& region, MemType type, Device* device) ONESIDED_REQUIRES(mutex_);
  // If the same range is registered, counts it and returns it. Without an overlap: null. Any other overlap is an error.
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
