// Why: what `onesided.npu` needs of the decorator. Names and meaning for users are in python/onesided/npu.
#include <c10/util/Exception.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "aligned_allocator.h"
#include "interpreter_lock.h"
#include "onesided/node/pool_registration.h"
#include "pool_conversions.h"

namespace nb = nanobind;

namespace onesided::torch_npu {
namespace {

AlignedAllocator& decorator() { return AlignedAllocator::instance(); }

AlignedPoolPtr pool_with(PoolId id) {
  AlignedPoolPtr pool = decorator().directory().find(id);
  if (!pool) throw nb::value_error("not an aligned pool, or one that is gone");
  return pool;
}

void declare_next_pool(std::uint64_t alignment, bool no_split, std::uint64_t max_bytes, std::uint64_t preallocate_bytes,
                       double gc_threshold, std::uint64_t segment_bytes, std::uint64_t segment_bytes_max,
                       std::uint64_t guard_bytes) {
  PoolOptions options;
  options.alignment = alignment;
  options.no_split = no_split;
  options.max_bytes = max_bytes;
  options.preallocate_bytes = preallocate_bytes;
  options.gc_threshold = gc_threshold;
  options.segment_bytes = segment_bytes;
  options.segment_bytes_max = segment_bytes_max;
  options.guard_bytes = guard_bytes;
  // The page of every NPU; the pool checks again against its device.
  if (const auto checked = check_options(options, 4 * kKiB); !checked.ok()) {
    throw nb::value_error(checked.error().text().c_str());
  }
  AlignedAllocator::declare_next_pool(NextPool{options});
}

// Joins a pool to an engine that Python knows: register(address, nbytes, "device") -> handle, deregister(handle).
// Confined by the interpreter lock; the calls come from any thread.
class PythonRegistration {
 public:
  PythonRegistration(PoolId id, nb::object register_function, nb::object deregister_function) : pool_(pool_with(id)) {
    auto calls = std::make_shared<Calls>(std::move(register_function), std::move(deregister_function));
    RegistrationCalls hooks{
        [calls](std::uint64_t address, std::uint64_t nbytes, MemType) { return calls->add(address, nbytes); },
        [calls](std::uint64_t handle) { return calls->drop(handle); }};
    auto made = [&] {
      const python::Unlocked unlocked;
      return PoolRegistration::create(*pool_->pool, std::move(hooks));
    }();
    if (!made.ok()) throw std::runtime_error(made.error().text());
    registration_ = *std::move(made);
  }
  ~PythonRegistration() { close(); }

  void close() {
    auto ending = std::move(registration_);
    const python::Unlocked unlocked;
    ending.reset();
  }
  std::uint64_t segments() const { return registration_ ? registration_->segments_registered() : 0; }
  std::uint64_t registrations() const { return registration_ ? registration_->registrations_made() : 0; }
  std::vector<std::string> failures() const {
    std::vector<std::string> all;
    if (!registration_) return all;
    for (const Error& error : registration_->failures()) all.push_back(error.text());
    return all;
  }

 private:
  // The engine's handles are Python objects; the core knows them by number.
  class Calls {
   public:
    Calls(nb::object add, nb::object drop) : add_(std::move(add)), drop_(std::move(drop)) {}
    ~Calls() {
      if (!nb::is_alive()) {
        (void)add_.release();
        (void)drop_.release();
        for (auto& [number, handle] : handles_) (void)handle.release();
        return;
      }
      const python::Locked gil;
      add_.reset();
      drop_.reset();
      handles_.clear();
    }
    Result<std::uint64_t> add(std::uint64_t address, std::uint64_t nbytes) {
      const python::Locked gil;
      try {
        handles_[++last_] = add_(address, nbytes, "device");
        return last_;
      } catch (nb::python_error& error) {
        return Error{Status::kFailed, error.what()};
      }
    }
    Result<void> drop(std::uint64_t number) {
      if (!nb::is_alive()) return {};
      const python::Locked gil;
      const auto found = handles_.find(number);
      if (found == handles_.end()) return Error{Status::kNotFound, "no such registration"};
      const nb::object handle = std::move(found->second);
      handles_.erase(found);
      try {
        drop_(handle);
        return {};
      } catch (nb::python_error& error) {
        return Error{Status::kFailed, error.what()};
      }
    }

   private:
    // Guarded by the interpreter lock.
    nb::object add_;
    nb::object drop_;
    std::uint64_t last_ = 0;
    std::map<std::uint64_t, nb::object> handles_;
  };

  AlignedPoolPtr pool_;
  std::unique_ptr<PoolRegistration> registration_;
};

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
  module.doc() = "The allocator decorator for one minor version of torch and torch_npu.";
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
             nb::arg("segment_bytes_max") = defaults.segment_bytes_max, nb::arg("guard_bytes") = 0);
  module.def("undeclare_next_pool", [] { AlignedAllocator::declare_next_pool(std::nullopt); });
  module.def(
      "set_default_pool", [](std::optional<PoolId> id) { decorator().set_default_pool(id); }, nb::arg("id").none());
  module.def("pool_ids", [] {
    std::vector<PoolId> ids;
    for (const AlignedPoolPtr& pool : decorator().directory().pools()) ids.push_back(pool->id);
    return ids;
  });
  module.def("pool_device", [](PoolId id) { return static_cast<int>(pool_with(id)->device_index); });
  module.def("pool_alignment", [](PoolId id) { return pool_with(id)->pool->options().alignment; });
  module.def("pool_stats", [](PoolId id) { return python::to_dict(pool_with(id)->pool->stats()); });
  module.def("pool_trim", [](PoolId id) {
    const python::Unlocked unlocked;
    return pool_with(id)->pool->trim();
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
  nb::class_<PythonRegistration>(module, "PoolRegistration", "A pool's segments, registered with one engine.")
      .def(nb::init<PoolId, nb::object, nb::object>(), nb::arg("id"), nb::arg("register"), nb::arg("deregister"))
      .def("close", &PythonRegistration::close, "Deregisters everything and stops listening.")
      .def_prop_ro("segments", &PythonRegistration::segments, "Segments registered now.")
      .def_prop_ro("registrations", &PythonRegistration::registrations, "Registrations made since the beginning.")
      .def_prop_ro("failures", &PythonRegistration::failures,
                   "What could not be registered or deregistered, in words.");
  module.def("describe_pools", [](int device) { return decorator().describe_pools(device); });
}
