// The version of this build.
#pragma once

#include <string_view>

namespace onesided {

// "0.1.0", as in pyproject.toml.
std::string_view version();

}  // namespace onesided
