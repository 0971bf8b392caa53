// The Python face of the core. Thin: conversions, the interpreter lock, and the birth of exceptions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "errors.h"
#include "onesided/node/version.h"

namespace nb = nanobind;

namespace onesided::python {

void bind_engine(nb::module_& module);
void bind_pool(nb::module_& module);
void bind_ray(nb::module_& module);
void bind_weights(nb::module_& module);

}  // namespace onesided::python

NB_MODULE(_core, module) {
  module.doc() = "The C++ core of onesided.";
  // Engines and buffers live until the process ends, in Ray's workers for example: no leak, and no text on stderr.
  nb::set_leak_warnings(false);
  module.def("version", &onesided::version);
  onesided::python::bind_errors(module);
  onesided::python::bind_engine(module);
  onesided::python::bind_pool(module);
  onesided::python::bind_ray(module);
  onesided::python::bind_weights(module);
}
