// Communicators: made from root information, of a part of another one, or of all devices of a process; asked;
// destroyed.
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "ascend_sim/hccl/api.h"
#include "onesided/base/mutex.h"

namespace onesided::sim::hccl {
namespace {

constexpr std::uint64_t kRootMagic = 0x6f6e656c63636831;  // ours: root information of another library is refused

// Root information, as it travels. A value of plain words.
struct RootWords {
  std::uint64_t magic;
  char engine_id[256];
  char topic[64];
};
static_assert(sizeof(RootWords) <= kRootInfoBytes);

// Live communicators. Internally synchronized.
struct Handles {
  Mutex mutex;
  std::map<std::uintptr_t, std::shared_ptr<Communicator>> live ONESIDED_GUARDED_BY(mutex);
  std::uintptr_t next ONESIDED_GUARDED_BY(mutex) = 0x68636c0000000010;  // points nowhere
};
Handles& handles() {
  static auto* instance = new Handles;
  return *instance;
}

// Seconds from the environment, as the vendor's library reads them.
Result<std::int64_t> seconds_from(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  if (*end == '\0' && value >= 0) return value;
  return Error(Status::kParamInvalid, fmt::format("{}=\"{}\" is not a number of seconds", variable, text));
}

Result<Communicator::Options> options_from(const CommConfig* config) {
  // The vendor's defaults. 0 seconds for an operation: no limit.
  ONESIDED_TRY_ASSIGN(connect_s, seconds_from("HCCL_CONNECT_TIMEOUT", 120));
  ONESIDED_TRY_ASSIGN(exec_s, seconds_from("HCCL_EXEC_TIMEOUT", 1836));
  Communicator::Options options;
  options.connect_timeout_ms = connect_s * 1000;
  if (config) {
    if (config->magic != kConfigMagic || config->nbytes < offsetof(CommConfig, name)) {
      return Error(Status::kParamInvalid, "the configuration was not initialised with HcclCommConfigInit");
    }
    if (config->nbytes >= offsetof(CommConfig, udi)) {
      options.name.assign(config->name, ::strnlen(config->name, sizeof(config->name)));
      if (options.name.size() == sizeof(config->name))
        return Error(Status::kParamInvalid, "the communicator's name has no end within 128 bytes");
    }
    if (config->nbytes >= sizeof(CommConfig) && config->exec_timeout_s != kExecTimeoutNotSet)
      exec_s = config->exec_timeout_s;
  }
  constexpr std::int64_t kNoLimitMs = 1000LL * 365 * 24 * 3600 * 1000;
  options.exec_timeout_ms = exec_s == 0 ? kNoLimitMs : exec_s * 1000;
  return options;
}

Code fill_root(RootInfo* root) {
  const auto board = own_switchboard();
  if (!board.ok()) return refuse(code_of(board.error().status()), "HcclGetRootInfo: {}", board.error().text());
  static std::atomic<std::uint64_t> next{0};
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;
  onesided_sim_self(&pid, &start_time);
  RootWords words{kRootMagic, {}, {}};
  const std::string topic = fmt::format("root-{}-{}-{}", pid, start_time, next.fetch_add(1));
  if ((*board)->id().size() >= sizeof(words.engine_id)) return refuse(kInternal, "HcclGetRootInfo: address too long");
  std::memcpy(words.engine_id, (*board)->id().c_str(), (*board)->id().size() + 1);
  std::memcpy(words.topic, topic.c_str(), topic.size() + 1);
  std::memset(root, 0, sizeof(*root));
  std::memcpy(root->internal, &words, sizeof(words));
  return kSuccess;
}

Code join(const char* function, const Meeting& meeting, std::uint32_t rank, const CommConfig* config, void** handle) {
  const auto options = options_from(config);
  if (!options.ok()) return refuse(code_of(options.error().status()), "{}: {}", function, options.error().text());
  const auto board = own_switchboard();
  if (!board.ok()) return refuse(code_of(board.error().status()), "{}: {}", function, board.error().text());
  auto group = Communicator::join(**board, meeting, rank, *options);
  if (!group.ok()) return refuse(code_of(group.error().status()), "{}: {}", function, group.error().text());
  *handle = add_communicator(std::move(group).value());
  return kSuccess;
}

Code join_root(const char* function, std::uint32_t ranks, const RootInfo* root, std::uint32_t rank,
               const CommConfig* config, void** handle) {
  if (!root || !handle) return refuse(kPtr, "{}: null pointer", function);
  if (ranks == 0 || rank >= ranks)
    return refuse(kPara, "{}: rank {} of {} ranks does not exist", function, rank, ranks);
  RootWords words{};
  std::memcpy(&words, root->internal, sizeof(words));
  words.engine_id[sizeof(words.engine_id) - 1] = words.topic[sizeof(words.topic) - 1] = '\0';
  if (words.magic != kRootMagic) {
    return refuse(kPara, "{}: the root information does not come from this library's HcclGetRootInfo", function);
  }
  return join(function, {words.engine_id, words.topic, ranks}, rank, config, handle);
}

Code split(const char* function, const std::shared_ptr<Communicator>& parent, std::uint32_t count,
           const std::uint32_t* ranks, std::uint64_t id, std::uint32_t rank, const CommConfig* config, void** handle) {
  if (!handle) return refuse(kPtr, "{}: null pointer", function);
  *handle = nullptr;
  if (!ranks) return kSuccess;  // this rank is not in the part
  if (count == 0 || rank >= count)
    return refuse(kPara, "{}: rank {} of {} ranks does not exist", function, rank, count);
  std::string topic = fmt::format("part-{:016x}-{}", parent->instance(), id);
  std::map<std::uint32_t, std::uint32_t> seen;
  for (std::uint32_t place = 0; place < count; ++place) {
    if (ranks[place] >= parent->ranks() || !seen.emplace(ranks[place], place).second) {
      return refuse(kPara, "{}: rank {} stands twice in the list, or is not in {}", function, ranks[place],
                    parent->name());
    }
    topic += fmt::format("-{}", ranks[place]);
  }
  if (ranks[rank] != parent->rank()) {
    return refuse(kPara, "{}: place {} of the list is rank {}, this is rank {}", function, rank, ranks[rank],
                  parent->rank());
  }
  return join(function, {parent->member(ranks[0]).engine_id, topic, count}, rank, config, handle);
}

}  // namespace

void* add_communicator(std::shared_ptr<Communicator> group) {
  MutexLock lock(handles().mutex);
  const std::uintptr_t handle = handles().next;
  handles().next += 16;
  handles().live.emplace(handle, std::move(group));
  return reinterpret_cast<void*>(handle);  // NOLINT: an opaque number, as handles are
}

std::shared_ptr<Communicator> find_communicator(const void* handle) {
  MutexLock lock(handles().mutex);
  const auto found = handles().live.find(reinterpret_cast<std::uintptr_t>(handle));
  return found == handles().live.end() ? nullptr : found->second;
}

std::shared_ptr<Communicator> remove_communicator(const void* handle) {
  MutexLock lock(handles().mutex);
  const auto found = handles().live.find(reinterpret_cast<std::uintptr_t>(handle));
  if (found == handles().live.end()) return nullptr;
  auto group = std::move(found->second);
  handles().live.erase(found);
  return group;
}

const char* code_name(std::int32_t code) {
  switch (code) {
    case kSuccess: return "HCCL_SUCCESS";
    case kPara: return "HCCL_E_PARA";
    case kPtr: return "HCCL_E_PTR";
    case kMemory: return "HCCL_E_MEMORY";
    case kInternal: return "HCCL_E_INTERNAL";
    case kNotSupport: return "HCCL_E_NOT_SUPPORT";
    case kNotFound: return "HCCL_E_NOT_FOUND";
    case kUnavail: return "HCCL_E_UNAVAIL";
    case kSyscall: return "HCCL_E_SYSCALL";
    case kTimeout: return "HCCL_E_TIMEOUT";
    case kTcpConnect: return "HCCL_E_TCP_CONNECT";
    case kTcpTransfer: return "HCCL_E_TCP_TRANSFER";
    case kRuntime: return "HCCL_E_RUNTIME";
    case kNetwork: return "HCCL_E_NETWORK";
    case kAgain: return "HCCL_E_AGAIN";
    case kRemote: return "HCCL_E_REMOTE";
    case kSuspending: return "HCCL_E_SUSPENDING";
    case kOutOfMemory: return "HCCL_E_OOM";
    default: return "unknown error";
  }
}

}  // namespace onesided::sim::hccl

using namespace onesided::sim::hccl;  // NOLINT: this file is the C face of the namespace

ONESIDED_HCCL_EXPORT std::int32_t HcclGetRootInfo(RootInfo* root) {
  return api("HcclGetRootInfo", [&] { return root ? fill_root(root) : refuse(kPtr, "HcclGetRootInfo: null pointer"); });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclGetRootInfoScalable(RootInfo* root) {
  return api("HcclGetRootInfoScalable",
             [&] { return root ? fill_root(root) : refuse(kPtr, "HcclGetRootInfoScalable: null pointer"); });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommInitRootInfo(std::uint32_t ranks, const RootInfo* root, std::uint32_t rank,
                                                       void** comm) {
  return api("HcclCommInitRootInfo",
             [&] { return join_root("HcclCommInitRootInfo", ranks, root, rank, nullptr, comm); });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommInitRootInfoConfig(std::uint32_t ranks, const RootInfo* root,
                                                             std::uint32_t rank, const CommConfig* config,
                                                             void** comm) {
  return api("HcclCommInitRootInfoConfig",
             [&] { return join_root("HcclCommInitRootInfoConfig", ranks, root, rank, config, comm); });
}

// Several roots share the work of many ranks on the hardware; here the first one does it all.
ONESIDED_HCCL_EXPORT std::int32_t HcclCommInitRootInfoScalable(std::uint32_t ranks, std::uint32_t roots,
                                                               const RootInfo* list, std::uint32_t rank,
                                                               std::uint32_t /*extra_roots*/, const CommConfig* config,
                                                               void** comm) {
  constexpr const char* kName = "HcclCommInitRootInfoScalable";
  return api(kName, [&] {
    return roots == 0 ? refuse(kPara, "{}: no root", kName) : join_root(kName, ranks, list, rank, config, comm);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCreateSubCommConfig(void** comm, std::uint32_t count, std::uint32_t* ranks,
                                                          std::uint64_t id, std::uint32_t rank, CommConfig* config,
                                                          void** part) {
  constexpr const char* kName = "HcclCreateSubCommConfig";
  return group_api(kName, comm ? *comm : nullptr,
                   [&](const auto& group) { return split(kName, group, count, ranks, id, rank, config, part); });
}

// All ranks in this process, one a device: each joins on a thread of its own.
ONESIDED_HCCL_EXPORT std::int32_t HcclCommInitAll(std::uint32_t count, std::int32_t* devices, void** comms) {
  constexpr const char* kName = "HcclCommInitAll";
  return api(kName, [&] {
    if (!devices || !comms) return refuse(kPtr, "{}: null pointer", kName);
    if (count == 0) return refuse(kPara, "{}: no device", kName);
    RootInfo root;
    if (const Code code = fill_root(&root)) return code;
    std::vector<Code> codes(count, kSuccess);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      threads.emplace_back([&, rank] { codes[rank] = join_root(kName, count, &root, rank, nullptr, &comms[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Code code : codes)
      if (code != kSuccess) return refuse(code, "{}: the ranks of this process did not find each other", kName);
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommDestroy(void* comm) {
  return group_api("HcclCommDestroy", comm, [&](const auto& group) {
    remove_communicator(comm);
    group->destroy();
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclGetRankSize(void* comm, std::uint32_t* size) {
  return group_api("HcclGetRankSize", comm, [&](const auto& group) {
    if (!size) return refuse(kPtr, "HcclGetRankSize: null pointer");
    *size = group->ranks();
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclGetRankId(void* comm, std::uint32_t* rank) {
  return group_api("HcclGetRankId", comm, [&](const auto& group) {
    if (!rank) return refuse(kPtr, "HcclGetRankId: null pointer");
    *rank = group->rank();
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclGetCommName(void* comm, char* name) {
  return group_api("HcclGetCommName", comm, [&](const auto& group) {
    if (!name) return refuse(kPtr, "HcclGetCommName: null pointer");
    std::memset(name, 0, kNameBytes);
    group->name().copy(name, kNameBytes - 1);
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclGetCommAsyncError(void* comm, std::int32_t* code) {
  return group_api("HcclGetCommAsyncError", comm, [&](const auto& group) {
    if (!code) return refuse(kPtr, "HcclGetCommAsyncError: null pointer");
    *code = group->failure();
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT const char* HcclGetErrorString(std::int32_t code) { return code_name(code); }
ONESIDED_HCCL_EXPORT std::uint32_t HcclGetCommConfigCapability() { return kConfigCapability; }

// No new work until it is resumed; what runs goes on.
ONESIDED_HCCL_EXPORT std::int32_t HcclCommSuspend(void* comm) {
  return group_api("HcclCommSuspend", comm, [&](const auto& group) {
    group->suspended = true;
    return kSuccess;
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclCommResume(void* comm) {
  return group_api("HcclCommResume", comm, [&](const auto& group) {
    group->suspended = false;
    return kSuccess;
  });
}
