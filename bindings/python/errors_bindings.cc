// Status and EngineError must exist before any other binding can raise.
#include <nanobind/stl/string.h>

#include "errors.h"
#include "onesided/base/status.h"

namespace nb = nanobind;

namespace onesided::python {
namespace {

// Exists as long as the interpreter, because exceptions may be made while modules are destroyed.
PyObject* engine_error_type = nullptr;

}  // namespace

nb::object make_engine_error(const Error& error) {
  auto instance = nb::steal(PyObject_CallFunction(engine_error_type, "s", error.to_string().c_str()));
  if (!instance.is_valid()) nb::raise_python_error();
  instance.attr("status") = nb::cast(error.status());
  instance.attr("text") = nb::cast(error.text());
  return instance;
}

void bind_errors(nb::module_& module) {
  auto status = nb::enum_<Status>(module, "Status", nb::is_arithmetic(), "Outcomes, with HIXL's names and values.");
  for (const auto value :
       {Status::kSuccess, Status::kParamInvalid, Status::kTimeout, Status::kNotConnected, Status::kAlreadyConnected,
        Status::kNotifyFailed, Status::kUnsupported, Status::kResourceExhausted, Status::kFailed, Status::kStale,
        Status::kBusy, Status::kAddrInUse, Status::kNotFound, Status::kPeerLost, Status::kAuthFailed,
        Status::kCancelled, Status::kMisaligned, Status::kClosed})
    status.value(status_name(value).data(), value);

  engine_error_type = PyErr_NewExceptionWithDoc(
      "onesided.EngineError",
      "A call of the engine or a pool failed: `.status` is the code; the text says what failed, where, and what to do.",
      PyExc_RuntimeError, nullptr);
  module.attr("EngineError") = nb::borrow(engine_error_type);
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const RaisedError& raised) {
      PyErr_SetObject(engine_error_type, make_engine_error(raised.error()).ptr());
    }
  });
}

}  // namespace onesided::python
