#include "vendor_engine.h"

#include <fmt/format.h>

#include <utility>

#include "driver.h"
#include "engine_core.h"
#include "onesided/base/log.h"
#include "onesided/device/host/factory.h"

namespace onesided::hixl_abi {

namespace {

thread_local std::string t_last_error;

Status failed(const char* call, const Error& error) {
  t_last_error = fmt::format("{}: {}", call, error.text());
  log_line(LogLevel::kError, fmt::format("hixl: {}: {}", call, error.to_string()));
  return error.status();
}

// Memory that malloc_mem() gave out and how it is given back.
struct GivenOut {
  Mutex mutex;
  std::map<void*, std::pair<MemType, std::uint64_t>> ranges ONESIDED_GUARDED_BY(mutex);
};

GivenOut& given_out() {
  static auto* instance = new GivenOut;  // programs free while statics are destroyed
  return *instance;
}

}  // namespace

const char* last_error() { return t_last_error.c_str(); }

VendorEngine::VendorEngine() = default;

VendorEngine::~VendorEngine() { finalize(); }

std::shared_ptr<EngineCore> VendorEngine::core() const {
  MutexLock lock(mutex_);
  return core_;
}

template <typename Call>
Status VendorEngine::with_core(const char* call, Call&& body) {
  const auto core = this->core();
  if (!core) return failed(call, Error(Status::kFailed, "the engine is not initialized; call Initialize first"));
  if (!core->same_process())
    return failed(call, Error(Status::kClosed, "the engine belongs to the parent of this forked process"));
  const Result<void> result = body(*core);
  return result.ok() ? Status::kSuccess : failed(call, result.error());
}

Status VendorEngine::initialize(const std::string& local_engine, const std::map<std::string, std::string>& options) {
  if (core()) return failed("Initialize", Error(Status::kParamInvalid, "the engine is initialized already"));
  auto made = EngineCore::create(local_engine, options);
  if (!made) return failed("Initialize", made.error());
  MutexLock lock(mutex_);
  if (core_) return failed("Initialize", Error(Status::kParamInvalid, "the engine is initialized already"));
  core_ = std::move(made).value();
  return Status::kSuccess;
}

void VendorEngine::finalize() {
  std::shared_ptr<EngineCore> last;
  {
    MutexLock lock(mutex_);
    last = std::exchange(core_, nullptr);
  }
  if (!last) return;
  if (last->same_process())
    last->close();
  else  // a forked child has the memory but not the threads: it forgets the engine, and ends nothing of the parent's
    new std::shared_ptr<EngineCore>(std::move(last));
}

Status VendorEngine::register_mem(const Segment& segment, std::uint64_t& handle) {
  return with_core("RegisterMem", [&](EngineCore& core) -> Result<void> {
    ONESIDED_TRY_ASSIGN(registered, core.register_mem(segment));
    handle = registered;
    return {};
  });
}

Status VendorEngine::deregister_mem(std::uint64_t handle) {
  return with_core("DeregisterMem", [&](EngineCore& core) { return core.deregister_mem(handle); });
}

Status VendorEngine::connect(const std::string& remote, std::int32_t timeout_ms) {
  return with_core("Connect", [&](EngineCore& core) { return core.connect(remote, timeout_ms); });
}

Status VendorEngine::disconnect(const std::string& remote, std::int32_t timeout_ms) {
  return with_core("Disconnect", [&](EngineCore& core) -> Result<void> {
    if (timeout_ms <= 0) return Error(Status::kParamInvalid, fmt::format("timeout {} ms", timeout_ms));
    return core.disconnect(remote);
  });
}

Status VendorEngine::connect_async(AsyncConnects::Job job, const std::string& remote, std::int32_t timeout_ms) {
  return with_core("ConnectAsync", [&](EngineCore& core) -> Result<void> {
    if (timeout_ms <= 0) return Error(Status::kParamInvalid, fmt::format("timeout {} ms", timeout_ms));
    return core.async_connects().submit(job, remote, timeout_ms);
  });
}

Status VendorEngine::async_connect_state(const std::string& remote, ConnectState& state) {
  return with_core("GetAsyncConnectStatus", [&](EngineCore& core) -> Result<void> {
    state = core.async_connects().state(remote);
    return {};
  });
}

Status VendorEngine::async_connect_states(std::map<std::string, ConnectState>& states) {
  return with_core("GetAsyncConnectStatus", [&](EngineCore& core) -> Result<void> {
    states = core.async_connects().states();
    return {};
  });
}

Status VendorEngine::transfer_sync(const std::string& remote, Direction direction, std::span<const Item> items,
                                   std::int32_t timeout_ms) {
  return with_core("TransferSync",
                   [&](EngineCore& core) { return core.transfer_sync(remote, direction, items, timeout_ms); });
}

Status VendorEngine::transfer_async(const std::string& remote, Direction direction, std::span<const Item> items,
                                    std::uint64_t& request) {
  return with_core("TransferAsync", [&](EngineCore& core) -> Result<void> {
    ONESIDED_TRY_ASSIGN(submitted, core.transfer_async(remote, direction, items));
    request = submitted;
    return {};
  });
}

Status VendorEngine::transfer_status(std::uint64_t request, Progress& progress) {
  return with_core("GetTransferStatus", [&](EngineCore& core) -> Result<void> {
    ONESIDED_TRY_ASSIGN(answer, core.transfer_status(request));
    progress = answer;
    return {};
  });
}

Status VendorEngine::send_notify(const std::string& remote, const Notification& notification, std::int32_t timeout_ms) {
  return with_core("SendNotify", [&](EngineCore& core) { return core.send_notify(remote, notification, timeout_ms); });
}

Status VendorEngine::get_notifies(std::vector<Notification>& notifications) {
  return with_core("GetNotifies", [&](EngineCore& core) -> Result<void> {
    notifications = core.get_notifies();
    return {};
  });
}

Status malloc_mem(MemType type, std::uint64_t nbytes, void** address) {
  if (address == nullptr || nbytes == 0)
    return failed("MallocMem", Error(Status::kParamInvalid, "null pointer, or 0 bytes asked"));
  auto made = type == MemType::kDevice ? Driver::find().allocate(nbytes)
                                       : shared_host_device().allocate(nbytes, kAscendPageBytes);
  if (!made) return failed("MallocMem", made.error());
  GivenOut& all = given_out();
  MutexLock lock(all.mutex);
  all.ranges[*made] = {type, nbytes};
  *address = *made;
  return Status::kSuccess;
}

Status free_mem(void* address) {
  GivenOut& all = given_out();
  std::pair<MemType, std::uint64_t> range;
  {
    MutexLock lock(all.mutex);
    const auto found = all.ranges.find(address);
    if (found == all.ranges.end())
      return failed("FreeMem", Error(Status::kParamInvalid, fmt::format("{} is not from MallocMem", address)));
    range = found->second;
    all.ranges.erase(found);
  }
  if (range.first == MemType::kDevice) {
    if (!Driver::find().free(address)) return failed("FreeMem", Error(Status::kFailed, "aclrtFree refused"));
    return Status::kSuccess;
  }
  const auto freed = shared_host_device().free(address, range.second);
  return freed.ok() ? Status::kSuccess : failed("FreeMem", freed.error());
}

}  // namespace onesided::hixl_abi
