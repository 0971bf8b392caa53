// Sizes come from the environment as people write them.
#pragma once

#include <cstdint>
#include <string_view>

#include "onesided/base/result.h"

namespace onesided::sim {

// "8589934592", "8GiB", "512M": bytes. PARAM_INVALID for anything else and for 0.
Result<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace onesided::sim
