#include "older_pools.h"

#include <c10/util/Exception.h>
#include <nanobind/stl/pair.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "aligned_allocator.h"
#include "interpreter_lock.h"

namespace nb = nanobind;

// Versions without it do without the declaration too; an incomplete type has no members.
namespace c10_npu {
struct MemPoolContext;
}  // namespace c10_npu

namespace onesided::torch_npu {
namespace {

// The allocator of the MemPool that this thread's MemPoolContext names. Its Python object is kept as long as ours.
template <typename Context>
std::shared_ptr<NPUAllocator> active_allocator(nb::object kept) {
  if constexpr (requires { Context::getActiveMemPool()->allocator(); }) {
    auto* const pool = Context::getActiveMemPool();
    if (kept.is_none() || !pool || !pool->allocator()) return nullptr;
    NPUAllocator* const allocator = &*pool->allocator();
    return {allocator, [kept = std::move(kept)](NPUAllocator*) mutable {
              if (!nb::is_alive()) return (void)kept.release();
              const python::Locked gil;
              kept.reset();
            }};
  } else {
    return nullptr;
  }
}

// torch_npu's own bindings turn c10's errors into these; an exception that leaves through ours is not seen by them.
template <typename Body>
auto translated(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError& error) {
    PyErr_SetString(nb::module_::import_("torch").attr("OutOfMemoryError").ptr(), error.what_without_backtrace());
    throw nb::python_error();
  } catch (const c10::ValueError& error) {
    throw nb::value_error(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

}  // namespace

void bind_older_pools(nb::module_& module) {
  module.attr("tells_captures") = kTellsCaptures;
  module.attr("pools_made_in_cpp") = kPoolsMadeInCpp;
  module.def(
      "add_declared_pool",
      [](int device, PoolId id, nb::object allocator) {
        auto upstream = active_allocator<c10_npu::MemPoolContext>(std::move(allocator));
        return translated([&] {
          const python::Unlocked unlocked;
          return AlignedAllocator::instance().add_declared_pool(static_cast<c10::DeviceIndex>(device), id,
                                                                std::move(upstream));
        });
      },
      nb::arg("device"), nb::arg("id"), nb::arg("allocator").none());
  module.def("set_use_on_oom", [](int device, PoolId id, bool use) {
    AlignedAllocator::instance().setUseOnOOM(static_cast<c10::DeviceIndex>(device), id, use);
  });
  module.def("begin_pool", [](int device, PoolId id, bool all_threads) {
    translated(
        [&] { AlignedAllocator::instance().begin_pool(static_cast<c10::DeviceIndex>(device), id, all_threads); });
  });
  module.def("end_pool", [](int device, PoolId id) {
    AlignedAllocator::instance().endAllocateToPool(static_cast<c10::DeviceIndex>(device), id);
  });
  module.def("release_pool", [](int device, PoolId id) {
    const python::Unlocked unlocked;
    AlignedAllocator::instance().releasePool(static_cast<c10::DeviceIndex>(device), id);
  });
  module.def("expect_captures", &AlignedAllocator::expect_captures);
}

}  // namespace onesided::torch_npu
