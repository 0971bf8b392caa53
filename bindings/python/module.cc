// The Python module of the core: conversions, handling of the GIL, and exceptions.
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
  // Engines and buffers may exist until the process ends, for example in Ray's workers. This is not a leak and must not
  // print to stderr.
  nb::set_leak_warnings(false);
  module.def("version", &onesided::version);
  onesided::python::bind_errors(module);
  onesided::python::bind_engine(module);
  onesided::python::bind_pool(module);
  onesided::python::bind_ray(module);
}
