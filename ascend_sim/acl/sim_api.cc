#include "ascend_sim/acl/sim_api.h"

#include "ascend_sim/acl/call.h"
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
