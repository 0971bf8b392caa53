// The version of this build.
#pragma once

#include <string_view>

namespace onesided {

// "0.1.0", as in python/onesided/__init__.py, where CMake finds it.
std::string_view version();

}  // namespace onesided
