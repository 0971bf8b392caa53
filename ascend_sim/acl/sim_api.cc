#include "ascend_sim/acl/sim_api.h"

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/copy.h"
#include "ascend_sim/acl/ledger.h"
#include "ascend_sim/acl/runtime.h"

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT int onesided_sim_export(const void* address, int* fd, std::uint64_t* file_offset,
                                            std::uint64_t* base, std::uint64_t* nbytes) {
  return api("onesided_sim_export", [&] {
    if (!fd || !file_offset || !base || !nbytes) return fail(kRtParamInvalid, "onesided_sim_export: null pointer");
    const MappingPtr mapping = runtime().memory.find(address);
    if (!mapping) return fail(kRtParamInvalid, "onesided_sim_export: {} is unknown to the simulated runtime", address);
    if (!mapping->backing)
      return fail(kRtFeatureNotSupport, "onesided_sim_export: {} is the program's own memory", address);
    *fd = mapping->backing->fd();
    *file_offset = mapping->file_offset;
    *base = mapping->base;
    *nbytes = mapping->nbytes;
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT int onesided_sim_stats(std::int32_t device, onesided_sim_device_stats* stats) {
  return api("onesided_sim_stats", [&] {
    if (!stats) return fail(kRtParamInvalid, "onesided_sim_stats: null pointer");
    if (const AclError code = runtime().check_device(device)) return code;
    const DeviceState& state = runtime().device(device);
    const DeviceStats own = state.stats();
    const auto ledger = Ledger::machine();
    if (!ledger.ok()) return fail(kRtDriverInternal, "onesided_sim_stats: {}", ledger.error().text());
    *stats = {own.mallocs,
              own.frees,
              own.used_bytes,
              own.peak_bytes,
              state.capacity_bytes(),
              (*ledger)->used(state.physical())};
    return kAclOk;
  });
}

namespace {

// Calls release() when the last owner drops it. Moved between threads with the queue.
class ForeignWork {
 public:
  explicit ForeignWork(const onesided_sim_work& work) : work_(work) {}
  ForeignWork(const ForeignWork&) = delete;
  ForeignWork& operator=(const ForeignWork&) = delete;
  ~ForeignWork() {
    if (queued_) work_.release(work_.state);
  }
  AclError run(Stream& stream) const {
    constexpr auto kAborted = [](void* token) -> int { return static_cast<Stream*>(token)->work_aborted() ? 1 : 0; };
    return work_.run(work_.state, kAborted, &stream);
  }
  // The stream did not take it: it stays the caller's.
  void refused() { queued_ = false; }

 private:
  const onesided_sim_work work_;
  bool queued_ = true;
};

}  // namespace

ONESIDED_SIM_EXPORT int onesided_sim_enqueue(void* handle, const onesided_sim_work* work) {
  constexpr const char* kName = "onesided_sim_enqueue";
  return api(kName, [&] {
    if (!work || !work->run || !work->release) return fail(kRtParamInvalid, "{}: null pointer", kName);
    const auto stream = stream_of(handle, kName);
    if (!stream) return kRtParamInvalid;
    auto task = std::make_shared<ForeignWork>(*work);
    // The worker that runs this keeps the stream alive.
    const AclError code = stream->enqueue([task, raw = stream.get()] { return task->run(*raw); });
    if (code != kAclOk) task->refused();
    return code;
  });
}

ONESIDED_SIM_EXPORT int onesided_sim_hold(const void* address, std::uint64_t nbytes, void** hold) {
  constexpr const char* kName = "onesided_sim_hold";
  return api(kName, [&] {
    if (!hold) return fail(kRtParamInvalid, "{}: null pointer", kName);
    auto held = std::make_unique<std::vector<MappingPtr>>();
    if (const AclError code = hold_range(kName, address, nbytes, held.get())) return code;
    *hold = held.release();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT void onesided_sim_release(void* hold) { delete static_cast<std::vector<MappingPtr>*>(hold); }

ONESIDED_SIM_EXPORT int onesided_sim_call(const char* function, int (*body)(void*), void* context) {
  return api(function, [&] { return body(context); });
}

ONESIDED_SIM_EXPORT void onesided_sim_self(std::int32_t* pid, std::uint64_t* start_time) {
  const ProcessId self = ProcessId::self();
  *pid = self.pid;
  *start_time = self.start_time;
}

ONESIDED_SIM_EXPORT int onesided_sim_alive(std::int32_t pid, std::uint64_t start_time) {
  return ProcessId{pid, start_time}.alive() ? 1 : 0;
}

ONESIDED_SIM_EXPORT int onesided_sim_fail(int code, const char* text) { return fail_with(code, text); }
