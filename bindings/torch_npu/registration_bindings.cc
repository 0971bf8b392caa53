// Registers segments with engines made in Python. Segments of aligned pools are reported without a lock, so any Python
// object can serve as the engine; segments of the native allocator are reported under its lock, so only onesided's own
// engine can.
#include "registration_bindings.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine_object.h"
#include "interpreter_lock.h"
#include "native_segments.h"
#include "onesided/node/pool_registration.h"

namespace nb = nanobind;

namespace onesided::torch_npu {
namespace {

// The status of an exception: EngineError has one, others do not.
Status status_of(const nb::python_error& error) {
  const nb::object status = nb::getattr(error.value(), "status", nb::none());
  int number = 0;
  return nb::try_cast(nb::getattr(status, "value", nb::none()), number) ? static_cast<Status>(number) : Status::kFailed;
}

// Without the traceback, which ends in lines of an unrelated caller.
std::string text_of(const nb::python_error& error) { return nb::str(error.value()).c_str(); }

std::vector<std::string> in_words(const std::vector<Error>& errors) {
  std::vector<std::string> all;
  for (const Error& error : errors) all.push_back(error.text());
  return all;
}

// Connects a pool to an engine in Python: register(address, nbytes, "device") -> handle, deregister(handle). Protected
// by the GIL; the calls come from any thread.
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
    if (!registration_) return {};
    return in_words(registration_->failures());
  }

 private:
  // The engine's handles are Python objects; the core identifies them by number.
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
        return Error{Status::kFailed, text_of(error)};
      }
    }
    Result<void> drop(std::uint64_t number) {
      if (!nb::is_alive()) return {};
      const python::Locked gil;
      const auto found = handles_.find(number);
      if (found == handles_.end()) return Error{Status::kNotFound, "no such registration"};
      try {
        drop_(found->second);
      } catch (nb::python_error& error) {
        const Status status = status_of(error);
        if (status != Status::kClosed && status != Status::kNotFound) return Error{status, text_of(error)};
      }
      handles_.erase(number);
      return {};
    }

   private:
    // Guarded by the GIL.
    nb::object add_;
    nb::object drop_;
    std::uint64_t last_ = 0;
    std::map<std::uint64_t, nb::object> handles_;
  };

  AlignedPoolPtr pool_;
  std::unique_ptr<PoolRegistration> registration_;
};

void bind_native_registration(nb::module_& module) {
  nb::module_::import_("onesided._core");  // defines Engine
  nb::class_<NativeRegistration>(module, "NativeRegistration", "Native segments, registered with one engine.")
      .def(nb::new_([](const python::PyEngine& engine) {
             const python::Unlocked unlocked;
             return NativeRegistration::create(*AlignedAllocator::instance().native(), engine.engine);
           }),
           nb::arg("engine"))
      .def(
          "add",
          [](NativeRegistration& self, std::uint64_t address) {
            const auto range = [&] {
              const python::Unlocked unlocked;
              return self.add(reinterpret_cast<void*>(address));
            }();
            if (!range.ok()) throw std::runtime_error(range.error().to_string());
            return std::pair{range->address, range->nbytes};
          },
          nb::arg("address"), "Registers the segment of the block that starts there: its base and length.")
      .def("close", &NativeRegistration::close, nb::call_guard<python::Unlocked>(),
           "Deregisters everything and stops listening.")
      .def_prop_ro("segments", &NativeRegistration::segments_registered, "Segments registered now.")
      .def_prop_ro("registrations", &NativeRegistration::registrations_made, "Registrations made since the beginning.")
      .def_prop_ro(
          "failures", [](const NativeRegistration& self) { return in_words(self.failures()); },
          "Texts about segments that could not be deregistered before they were freed.");
}

void bind_pool_registration(nb::module_& module) {
  nb::class_<PythonRegistration>(module, "PoolRegistration", "A pool's segments, registered with one engine.")
      .def(nb::init<PoolId, nb::object, nb::object>(), nb::arg("id"), nb::arg("register"), nb::arg("deregister"))
      .def("close", &PythonRegistration::close, "Deregisters everything and stops listening.")
      .def_prop_ro("segments", &PythonRegistration::segments, "Segments registered now.")
      .def_prop_ro("registrations", &PythonRegistration::registrations, "Registrations made since the beginning.")
      .def_prop_ro("failures", &PythonRegistration::failures,
                   "Texts about segments that could not be registered or deregistered.");
}

}  // namespace

AlignedPoolPtr pool_with(PoolId id) {
  AlignedPoolPtr pool = AlignedAllocator::instance().directory().find(id);
  if (!pool) throw nb::value_error("not an aligned pool, or one that was deleted");
  return pool;
}

void bind_registrations(nb::module_& module) {
  bind_pool_registration(module);
  bind_native_registration(module);
}

}  // namespace onesided::torch_npu
