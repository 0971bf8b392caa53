// Memory that programs announce beforehand, and settings of the library. On the hardware both make collectives faster;
// here data is read in place without either, so what is announced is checked and kept in the books, and changes
// nothing.
#include <map>

#include "ascend_sim/acl/functions.h"
#include "ascend_sim/hccl/api.h"
#include "onesided/base/align.h"

namespace onesided::sim::hccl {
namespace {

// Announced ranges of one kind, by handle. Internally synchronized.
class Ranges {
 public:
  // Null when the range overlaps another one of the same communicator.
  void* add(const void* comm, std::uint64_t address, std::uint64_t nbytes) {
    MutexLock lock(mutex_);
    for (const auto& [handle, range] : ranges_) {
      if (range.comm == comm && address < range.address + range.nbytes && range.address < address + nbytes)
        return nullptr;
    }
    const std::uintptr_t handle = next_ += 16;
    ranges_[handle] = {comm, address, nbytes};
    return reinterpret_cast<void*>(handle);  // NOLINT: an opaque number, as handles are
  }
  bool drop(const void* handle) {
    MutexLock lock(mutex_);
    return ranges_.erase(reinterpret_cast<std::uintptr_t>(handle)) > 0;
  }
  bool drop_at(const void* comm, std::uint64_t address) {
    MutexLock lock(mutex_);
    return std::erase_if(ranges_, [&](const auto& entry) {
             return entry.second.comm == comm && entry.second.address == address;
           }) > 0;
  }
  bool has(const void* handle) {
    MutexLock lock(mutex_);
    return ranges_.count(reinterpret_cast<std::uintptr_t>(handle)) > 0;
  }
  bool covers(const void* comm, std::uint64_t address, std::uint64_t nbytes) {
    MutexLock lock(mutex_);
    for (const auto& [handle, range] : ranges_) {
      if (range.comm == comm && range_within(address, nbytes, range.address, range.nbytes)) return true;
    }
    return false;
  }

 private:
  struct Range {
    const void* comm = nullptr;
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
  };
  Mutex mutex_;
  std::uintptr_t next_ ONESIDED_GUARDED_BY(mutex_) = 0x77696e0000000000;  // points nowhere
  std::map<std::uintptr_t, Range> ranges_ ONESIDED_GUARDED_BY(mutex_);
};

enum class Kind { kWindow, kReserved, kActive };

template <Kind Which>
Ranges& ranges() {
  static auto* instance = new Ranges;
  return *instance;
}

std::uint64_t number_of(const void* address) { return reinterpret_cast<std::uint64_t>(address); }

Code add_window(const char* function, const void* comm, void* address, std::uint64_t nbytes, void** handle) {
  if (!address || !handle) return refuse(kPtr, "{}: null pointer", function);
  MemoryHold hold;
  if (const auto held = hold.add("window", address, nbytes); nbytes == 0 || !held.ok())
    return refuse(kPara, "{}: {} bytes at {} are not device memory", function, nbytes, address);
  *handle = ranges<Kind::kWindow>().add(comm, number_of(address), nbytes);
  return *handle ? kSuccess
                 : refuse(kPara, "{}: another window holds a part of the {} bytes at {}", function, nbytes, address);
}

// The process's own settings, by number. Internally synchronized.
struct Settings {
  Mutex mutex;
  std::map<std::int32_t, std::int32_t> values ONESIDED_GUARDED_BY(mutex);
};
Settings& settings() {
  static auto* instance = new Settings;
  return *instance;
}

}  // namespace
}  // namespace onesided::sim::hccl

using namespace onesided::sim::hccl;  // NOLINT: this file is the C face of the namespace

ONESIDED_HCCL_EXPORT std::int32_t HcclCommRegister(void* comm, void* address, std::uint64_t nbytes, void** handle,
                                                   std::uint32_t /*flag*/) {
  return group_api("HcclCommRegister", comm,
                   [&](const auto&) { return add_window("HcclCommRegister", comm, address, nbytes, handle); });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommDeregister(void* comm, void* handle) {
  return group_api("HcclCommDeregister", comm, [&](const auto&) {
    return ranges<Kind::kWindow>().drop(handle) ? kSuccess
                                                : refuse(kNotFound, "HcclCommDeregister: {} is no window", handle);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommSymWinRegister(void* comm, void* address, std::uint64_t nbytes, void** handle,
                                                         std::uint32_t /*flag*/) {
  return group_api("HcclCommSymWinRegister", comm,
                   [&](const auto&) { return add_window("HcclCommSymWinRegister", comm, address, nbytes, handle); });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommSymWinDeregister(void* handle) {
  return api("HcclCommSymWinDeregister", [&] {
    return ranges<Kind::kWindow>().drop(handle)
               ? kSuccess
               : refuse(kNotFound, "HcclCommSymWinDeregister: {} is no window", handle);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommExchangeMem(void* comm, void* window, std::uint32_t* peers,
                                                      std::uint32_t count) {
  constexpr const char* kName = "HcclCommExchangeMem";
  return group_api(kName, comm, [&](const auto& group) {
    if (!peers && count != 0) return refuse(kPtr, "{}: null pointer", kName);
    if (!ranges<Kind::kWindow>().has(window)) return refuse(kNotFound, "{}: {} is no window", kName, window);
    for (std::uint32_t at = 0; at < count; ++at)
      if (peers[at] >= group->ranks())
        return refuse(kPara, "{}: rank {} is not in {}", kName, peers[at], group->name());
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommSetMemoryRange(void* comm, void* base, std::size_t nbytes,
                                                         std::size_t /*alignment*/, std::uint64_t /*flags*/) {
  constexpr const char* kName = "HcclCommSetMemoryRange";
  return group_api(kName, comm, [&](const auto&) {
    if (!base || nbytes == 0) return refuse(base ? kPara : kPtr, "{}: no memory given", kName);
    return ranges<Kind::kReserved>().add(comm, number_of(base), nbytes)
               ? kSuccess
               : refuse(kPara, "{}: {} bytes at {} overlap a range that was set before", kName, nbytes, base);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommUnsetMemoryRange(void* comm, void* base) {
  return group_api("HcclCommUnsetMemoryRange", comm, [&](const auto&) {
    return ranges<Kind::kReserved>().drop_at(comm, number_of(base))
               ? kSuccess
               : refuse(kNotFound, "HcclCommUnsetMemoryRange: no range was set at {}", base);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommActivateCommMemory(void* comm, void* address, std::size_t nbytes,
                                                             std::size_t /*offset*/, void* /*physical*/,
                                                             std::uint64_t /*flags*/) {
  constexpr const char* kName = "HcclCommActivateCommMemory";
  return group_api(kName, comm, [&](const auto&) {
    if (!ranges<Kind::kReserved>().covers(comm, number_of(address), nbytes))
      return refuse(kPara, "{}: {} bytes at {} are in no range that was set", kName, nbytes, address);
    return ranges<Kind::kActive>().add(comm, number_of(address), nbytes)
               ? kSuccess
               : refuse(kPara, "{}: a part of the {} bytes at {} is active already", kName, nbytes, address);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommDeactivateCommMemory(void* comm, void* address) {
  return group_api("HcclCommDeactivateCommMemory", comm, [&](const auto&) {
    return ranges<Kind::kActive>().drop_at(comm, number_of(address))
               ? kSuccess
               : refuse(kNotFound, "HcclCommDeactivateCommMemory: nothing is active at {}", address);
  });
}

// A second network card for a device is not simulated: there is nothing to switch to.
ONESIDED_HCCL_EXPORT std::int32_t HcclCommWorkingDevNicSet(void* comm, std::uint32_t* ranks, bool* use_backup,
                                                           std::uint32_t count) {
  constexpr const char* kName = "HcclCommWorkingDevNicSet";
  return group_api(kName, comm, [&](const auto&) {
    if (!ranks || !use_backup) return refuse(kPtr, "{}: null pointer", kName);
    for (std::uint32_t at = 0; at < count; ++at)
      if (use_backup[at]) return refuse(kNotSupport, "{}: the simulated devices have no backup network card", kName);
    return kSuccess;
  });
}

// 0: whether results must be the same in each run. They always are.
ONESIDED_HCCL_EXPORT std::int32_t HcclSetConfig(std::int32_t config, std::int32_t value) {
  return api("HcclSetConfig", [&] {
    if (config != 0) return refuse(kPara, "HcclSetConfig: there is no setting {}", config);
    onesided::MutexLock lock(settings().mutex);
    settings().values[config] = value;
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclGetConfig(std::int32_t config, std::int32_t* value) {
  return api("HcclGetConfig", [&] {
    if (!value) return refuse(kPtr, "HcclGetConfig: null pointer");
    if (config != 0) return refuse(kPara, "HcclGetConfig: there is no setting {}", config);
    onesided::MutexLock lock(settings().mutex);
    *value = settings().values[config];
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcommMemAlloc(void** address, std::uint64_t nbytes) {
  return api("HcommMemAlloc", [&] {
    if (!address) return refuse(kPtr, "HcommMemAlloc: null pointer");
    return aclrtMalloc(address, nbytes, onesided::sim::kMallocHugeFirst) == onesided::sim::kAclOk ? kSuccess : kMemory;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcommMemFree(void* address) {
  return api("HcommMemFree", [&] { return aclrtFree(address) == onesided::sim::kAclOk ? kSuccess : kPara; });
}
