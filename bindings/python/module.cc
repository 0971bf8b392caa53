// Why: the Python face of the core. Thin: conversions, the interpreter lock, and the birth of exceptions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "errors.h"
#include "onesided/node/version.h"

namespace nb = nanobind;

namespace onesided::python {

void bind_engine(nb::module_& module);
void bind_pool(nb::module_& module);
void bind_ray(nb::module_& module);

}  // namespace onesided::python

NB_MODULE(_core, module) {
  module.doc() = "The C++ core of onesided.";
  module.def("version", &onesided::version);
  onesided::python::bind_errors(module);
  onesided::python::bind_engine(module);
  onesided::python::bind_pool(module);
  onesided::python::bind_ray(module);
}
