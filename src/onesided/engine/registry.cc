#include "onesided/engine/registry.h"

#include <fmt/format.h>

#include <limits>

#include "onesided/base/mappings.h"

namespace onesided {
namespace {

std::string range_text(std::uint64_t address, std::uint64_t nbytes) {
  return fmt::format("[{:#x}, {:#x}) ({} bytes)", address, address + nbytes, nbytes);
}

}  // namespace

Result<std::unique_ptr<Registry>> Registry::create(std::uint64_t instance, MemoryDevices devices) {
  ONESIDED_TRY_ASSIGN(table, RegionTable::create_shared(instance));
  return std::unique_ptr<Registry>(new Registry(std::move(table), std::move(devices)));
}

Result<Device*> Registry::device_of(std::uint64_t address, std::uint64_t nbytes, MemType type) {
  if (type == MemType::kDevice) return devices_.find_device(address);
  if (!is_mapped(address, nbytes))
    return Error(Status::kParamInvalid,
                 fmt::format("{} is not completely mapped in this process; check address and length, and "
                             "register memory of an NPU as \"device\"",
                             range_text(address, nbytes)));
  return devices_.host;
}

Result<Registry::Added> Registry::add(std::uint64_t address, std::uint64_t nbytes, MemType type) {
  if (address == 0 || nbytes == 0)
    return Error(Status::kParamInvalid,
                 fmt::format("address {:#x} with {} bytes: both must be greater than 0", address, nbytes));
  if (!checked_add(address, nbytes))
    return Error(Status::kParamInvalid,
                 fmt::format("{:#x} + {} bytes wraps around the address space", address, nbytes));
  {
    MutexLock lock(mutex_);
    ONESIDED_TRY_ASSIGN(known, count_again(address, nbytes, type));
    if (known) return Added{known->region.key, false, {}};
  }
  ONESIDED_TRY_ASSIGN(device, device_of(address, nbytes, type));
  const std::uint64_t alignment = device->registration_alignment();
  for (const auto& [what, value] : {std::pair<const char*, std::uint64_t>{"va", address}, {"length", nbytes}}) {
    if (value % alignment == 0) continue;
    return Error(Status::kMisaligned,
                 fmt::format("{} {:#x} lies {:#x} past a {} MiB boundary of {}; allocate it from "
                             "MemPool(sub_block_alignment={}) or register the segment it lies in",
                             what, value, value % alignment, alignment / kMiB, device->name(), alignment));
  }
  RegionDesc region;
  region.address = address;
  region.nbytes = nbytes;
  region.device = type == MemType::kDevice;
  region.host_accessible = device->host_accessible();
  if (region.host_accessible) region.pieces = files_.pin(*device, address, nbytes);

  MutexLock lock(mutex_);
  auto added = insert(region, type, device->host_accessible() ? nullptr : device);
  lock.unlock();
  if (!added.ok() || !added->fresh) files_.unpin(region.pieces);
  return added;
}

Result<Registry::Slot*> Registry::count_again(std::uint64_t address, std::uint64_t nbytes, MemType type) {
  auto& map = by_address_[static_cast<std::size_t>(type)];
  auto at = map.lower_bound(address + nbytes);
  if (at == map.begin()) return nullptr;
  Slot* slot = std::prev(at)->second;
  const auto& region = slot->region;
  if (region.address + region.nbytes <= address) return nullptr;
  if (region.address == address && region.nbytes == nbytes && !slot->draining) {
    ++slot->count;
    return slot;
  }
  return Error(
      slot->draining ? Status::kBusy : Status::kParamInvalid,
      fmt::format("{} overlaps {}, which {}", range_text(address, nbytes), range_text(region.address, region.nbytes),
                  slot->draining
                      ? "is being deregistered and still in use; finish deregister_mem first"
                      : "is registered; register it with the same start and length, or deregister it first"));
}

Result<Registry::Added> Registry::insert(const RegionDesc& wanted, MemType type, Device* device) {
  // Looked up again: another thread may have registered it during the device call.
  ONESIDED_TRY_ASSIGN(known, count_again(wanted.address, wanted.nbytes, type));
  if (known) return Added{known->region.key, false, {}};
  if (free_.empty()) {
    if (slots_.size() >= RegionTable::kCapacity)
      return Error(
          Status::kResourceExhausted,
          fmt::format("{} regions are registered, which is the limit; register larger ranges (a pool's segments)",
                      slots_.size()));
    slots_.emplace_back();
    slots_.back().region.key.index = static_cast<std::uint32_t>(slots_.size() - 1);
    free_.push_back(slots_.back().region.key.index);
  }
  Slot& slot = slots_[free_.back()];
  free_.pop_back();
  const RegionKey key{slot.region.key.index, slot.region.key.generation + 1};
  slot.region = wanted;
  slot.region.key = key;
  slot.type = type;
  slot.device = device;
  slot.count = 1;
  slot.writable.reset();
  by_address_[static_cast<std::size_t>(type)][wanted.address] = &slot;
  table_->publish(slot.region);
  return Added{key, true, slot.region};
}

Result<void> Registry::check_writable(Slot& slot) {
  const auto& region = slot.region;
  if (!slot.writable) slot.writable = slot.type == MemType::kDevice || is_writable(region.address, region.nbytes);
  if (*slot.writable) return {};
  return Error(Status::kUnsupported,
               fmt::format("{} is mapped read-only: it can be read, but nothing can be moved into it",
                           range_text(region.address, region.nbytes)));
}

Registry::Slot* Registry::by_key(RegionKey key) {
  if (key.index >= slots_.size() || key.generation == 0) return nullptr;
  Slot& slot = slots_[key.index];
  return slot.region.key == key && (slot.count > 0 || slot.draining) ? &slot : nullptr;
}

Result<bool> Registry::begin_remove(RegionKey key) {
  MutexLock lock(mutex_);
  Slot* slot = by_key(key);
  if (!slot)
    return Error(Status::kNotFound,
                 fmt::format("no registered memory has the handle {}.{}", key.index, key.generation));
  if (slot->draining) return true;
  if (--slot->count > 0) return false;
  slot->draining = true;
  table_->retire(key);
  return true;
}

std::vector<RegionKey> Registry::retire_all() {
  MutexLock lock(mutex_);
  std::vector<RegionKey> keys;
  for (const auto& map : by_address_) {
    for (const auto& [address, slot] : map) {
      slot->count = 0;
      slot->draining = true;
      table_->retire(slot->region.key);
      keys.push_back(slot->region.key);
    }
  }
  return keys;
}

Result<void> Registry::drain(RegionKey key, Deadline deadline, const std::function<bool(Deadline)>& leases_clear,
                             const std::function<void()>& forget) {
  MutexLock lock(mutex_);
  Slot* slot = by_key(key);
  // Another thread has drained it completely: the outcome is the same.
  if (!slot || !slot->draining) return {};
  const std::string what = range_text(slot->region.address, slot->region.nbytes);
  lock.unlock();
  if (!slot->uses.wait_idle(deadline))
    return Error(Status::kBusy,
                 fmt::format("{} is still used by {} transfers; it accepts no new ones. Wait for them or "
                             "cancel them, then call deregister_mem again",
                             what, slot->uses.users()));
  if (!leases_clear(deadline))
    return Error(Status::kBusy, fmt::format("a peer is still writing into {}; no new transfer is accepted. Call "
                                            "deregister_mem again to wait longer",
                                            what));
  lock.lock();
  if (by_key(key) != slot || slot->forgetting) return {};
  slot->forgetting = true;
  lock.unlock();
  forget();
  lock.lock();
  by_address_[static_cast<std::size_t>(slot->type)].erase(slot->region.address);
  slot->draining = slot->forgetting = false;
  const auto pieces = std::move(slot->region.pieces);
  slot->region.pieces.clear();
  // An index whose generations are used up is never used again.
  if (key.generation < std::numeric_limits<std::uint32_t>::max()) free_.push_back(key.index);
  lock.unlock();
  files_.unpin(pieces);
  return {};
}

Registry::Slot* Registry::holding(std::uint64_t address, std::uint64_t nbytes) {
  for (auto& map : by_address_) {
    auto at = map.upper_bound(address);
    if (at == map.begin()) continue;
    Slot* slot = std::prev(at)->second;
    if (!slot->draining && range_within(address, nbytes, slot->region.address, slot->region.nbytes)) return slot;
  }
  return nullptr;
}

Error Registry::not_registered(std::uint64_t address, std::uint64_t nbytes) {
  for (auto& map : by_address_) {
    auto at = map.upper_bound(address);
    if (at == map.begin()) continue;
    const auto& region = std::prev(at)->second->region;
    if (address - region.address >= region.nbytes) continue;
    if (std::prev(at)->second->draining)
      return {Status::kParamInvalid, fmt::format("local range {} is being deregistered", range_text(address, nbytes))};
    return {
        Status::kParamInvalid,
        fmt::format("local range {} exceeds the registered region {} by {} bytes; an item must lie inside one region",
                    range_text(address, nbytes), range_text(region.address, region.nbytes),
                    nbytes - (region.nbytes - (address - region.address)))};
  }
  return {Status::kParamInvalid,
          fmt::format("local range {} is not registered; call register_mem first", range_text(address, nbytes))};
}

Result<RegionHold> Registry::acquire(RegionKey key, std::uint64_t address, std::uint64_t nbytes, Op op) {
  MutexLock lock(mutex_);
  Slot* slot = by_key(key);
  if (!slot || slot->draining)
    return Error(Status::kStale, fmt::format("region {}.{} was deregistered", key.index, key.generation));
  if (nbytes == 0 || !range_within(address, nbytes, slot->region.address, slot->region.nbytes))
    return Error(Status::kParamInvalid,
                 fmt::format("{:#x} + {} bytes does not lie in region {}.{} {}", address, nbytes, key.index,
                             key.generation, range_text(slot->region.address, slot->region.nbytes)));
  if (op == Op::kWrite) ONESIDED_TRY(check_writable(*slot));
  slot->uses.enter();
  return RegionHold(&slot->uses, slot->device);
}

Result<Registry::LocalLookup::Found> Registry::LocalLookup::hold(std::uint64_t address, std::uint64_t nbytes,
                                                                 Op op) ONESIDED_NO_TSA {
  if (last_ && range_within(address, nbytes, last_address_, last_nbytes_)) return Found{RegionHold(), last_device_};
  Slot* slot = registry_.holding(address, nbytes);
  if (!slot) return registry_.not_registered(address, nbytes);
  if (op == Op::kRead) ONESIDED_TRY(registry_.check_writable(*slot));
  slot->uses.enter();
  last_ = slot;
  last_address_ = slot->region.address;
  last_nbytes_ = slot->region.nbytes;
  last_device_ = slot->device;
  return Found{RegionHold(&slot->uses, slot->device), slot->device};
}

std::vector<RegionDesc> Registry::snapshot() {
  MutexLock lock(mutex_);
  std::vector<RegionDesc> regions;
  for (const auto& map : by_address_)
    for (const auto& [address, slot] : map)
      if (!slot->draining) regions.push_back(slot->region);
  return regions;
}

Result<RegionDesc> Registry::describe(std::uint64_t address, std::uint64_t nbytes) {
  MutexLock lock(mutex_);
  if (Slot* slot = holding(address, nbytes)) return slot->region;
  return not_registered(address, nbytes);
}

std::size_t Registry::live_regions() {
  MutexLock lock(mutex_);
  return by_address_[0].size() + by_address_[1].size();
}

}  // namespace onesided
