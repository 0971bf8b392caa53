// The Python module of the decorator, used by `onesided.npu`. The user's interface is documented in
// python/onesided/npu.
#include <c10/util/Exception.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "aligned_allocator.h"
#include "fit.h"
#include "interface_lines.h"
#include "interpreter_lock.h"
#include "older_pools.h"
#include "pool_conversions.h"
#include "registration_bindings.h"

namespace nb = nanobind;

namespace onesided::torch_npu {
namespace {

AlignedAllocator& decorator() { return AlignedAllocator::instance(); }

void declare_next_pool(std::uint64_t alignment, bool no_split, std::uint64_t max_bytes, std::uint64_t preallocate_bytes,
                       double gc_threshold, std::uint64_t segment_bytes, std::uint64_t segment_bytes_max,
                       std::optional<std::uint64_t> guard_bytes) {
  PoolOptions options;
  options.alignment = alignment;
  options.no_split = no_split;
  options.max_bytes = max_bytes;
  options.preallocate_bytes = preallocate_bytes;
  options.gc_threshold = gc_threshold;
  options.segment_bytes = segment_bytes;
  options.segment_bytes_max = segment_bytes_max;
  options.guard_bytes = guard_bytes;
  // The page size of every NPU; the pool checks again against its device.
  if (const auto checked = check_options(options, 4 * kKiB); !checked.ok()) {
    throw nb::value_error(checked.error().text().c_str());
  }
  AlignedAllocator::declare_next_pool(NextPool{options});
}

std::pair<std::uint64_t, std::uint64_t> base_allocation(std::uint64_t address) {
  std::size_t nbytes = 0;
  void* base = decorator().getBaseAllocation(reinterpret_cast<void*>(address), &nbytes);
  return {reinterpret_cast<std::uintptr_t>(base), nbytes};
}

}  // namespace
}  // namespace onesided::torch_npu

NB_MODULE(ONESIDED_MODULE_NAME, module) {
  using namespace onesided;             // NOLINT
  using namespace onesided::torch_npu;  // NOLINT
  const PoolOptions defaults;
  module.doc() = "The allocator decorator for one torch and one layout of torch_npu's allocator.";
  module.attr("interface") = ONESIDED_INTERFACE;  // NPUAllocator's functions, one a line, as its header declares them
  module.attr("built_for") = ONESIDED_BUILT_FOR;
  module.def("functions_compiled", &functions_compiled);
  module.def("functions_running", &functions_running);
  module.def("running_class", &running_class);
  module.def("misplaced_symbol", &misplaced_symbol);
  module.def("install", [] { return decorator().install(); });
  module.def("uninstall", [] {
    const auto done = [] {
      const python::Unlocked unlocked;
      return decorator().uninstall();
    }();
    if (!done.ok()) throw std::runtime_error(done.error().text());
  });
  module.def("installed", [] { return decorator().installed(); });
  module.def("declare_next_pool", &declare_next_pool, nb::arg("alignment"), nb::kw_only(), nb::arg("no_split") = false,
             nb::arg("max_bytes") = 0, nb::arg("preallocate_bytes") = 0, nb::arg("gc_threshold") = 0.0,
             nb::arg("segment_bytes") = defaults.segment_bytes,
             nb::arg("segment_bytes_max") = defaults.segment_bytes_max, nb::arg("guard_bytes").none() = nb::none());
  module.def("undeclare_next_pool", [] { AlignedAllocator::declare_next_pool(std::nullopt); });
  module.def(
      "set_default_pool", [](std::optional<PoolId> id) { decorator().set_default_pool(id); }, nb::arg("id").none());
  module.def("pool_ids", [] {
    {
      const python::Unlocked unlocked;
      decorator().directory().sweep();
    }
    std::vector<PoolId> ids;
    for (const AlignedPoolPtr& pool : decorator().directory().pools()) ids.push_back(pool->id);
    return ids;
  });
  module.def("pool_device", [](PoolId id) { return static_cast<int>(pool_with(id)->device_index); });
  module.def("pool_alignment", [](PoolId id) { return pool_with(id)->pool->options().alignment; });
  module.def("pool_stats", [](PoolId id) { return python::to_dict(pool_with(id)->pool->stats()); });
  module.def("pool_trim", [](PoolId id) {
    const python::Unlocked unlocked;
    return pool_with(id)->pool->trim(UINT64_MAX, Pool::Patience::kWaitForStreams);
  });
  module.def("pool_segments", [](PoolId id) {
    nb::list all;
    for (const SegmentSnapshot& segment : pool_with(id)->pool->snapshot()) all.append(python::to_dict(segment.info));
    return all;
  });
  module.def("pool_of", [](std::uint64_t address) -> std::optional<PoolId> {
    const AlignedPoolPtr pool = decorator().directory().owner_of(reinterpret_cast<void*>(address));
    if (!pool) return std::nullopt;
    return pool->id;
  });
  module.def("base_allocation", &base_allocation);
  module.def(
      "subscribe",
      [](PoolId id, nb::object added, nb::object dropped) {
        auto listener = std::make_shared<python::PythonSegmentListener>(std::move(added), std::move(dropped));
        const AlignedPoolPtr pool = pool_with(id);
        const python::Unlocked unlocked;
        return pool->pool->subscribe(std::move(listener));
      },
      nb::arg("id"), nb::arg("on_segment_added").none(), nb::arg("on_segment_dropped").none());
  module.def("unsubscribe", [](PoolId id, std::uint64_t subscription) {
    const AlignedPoolPtr pool = decorator().directory().find(id);
    const python::Unlocked unlocked;
    if (pool) pool->pool->unsubscribe(subscription);
  });
  bind_registrations(module);
  bind_older_pools(module);
  module.def("describe_pools", [](int device) { return decorator().describe_pools(device); });
}
