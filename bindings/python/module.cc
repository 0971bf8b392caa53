// Why: the Python face of the core. Thin: conversions, the interpreter lock, and the birth of exceptions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "onesided/node/version.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  module.doc() = "The C++ core of onesided.";
  module.def("version", &onesided::version);
}
