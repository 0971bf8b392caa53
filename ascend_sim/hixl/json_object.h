// Two options carry JSON. Their top level is all the simulator needs, so this reads one object and no more, and
// reads it totally: every string is an object or is refused.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "onesided/base/result.h"

namespace onesided::hixl_abi {

// The members of the JSON object in `text`: a string value without its quotes and escapes, every other value (number,
// true, array, object, ...) as it is written. Nesting up to 64 levels. PARAM_INVALID with the position and what was
// expected there; also for a name that occurs twice.
Result<std::map<std::string, std::string>> parse_json_object(std::string_view text);

}  // namespace onesided::hixl_abi
