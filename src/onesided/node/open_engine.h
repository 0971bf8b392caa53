// An engine with everything this build has: host memory, NPUs, all transports. Programs and bindings start here.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "onesided/engine/engine.h"

namespace onesided {

// Names that the option "transports" may list, best first.
std::vector<std::string> known_transports();

// What an engine offers when the option is left out: all of them, but "ascend" only where real NPUs are.
std::vector<std::string> default_transports();

// PARAM_INVALID: names the option or the address. ADDR_IN_USE. NOT_FOUND: the secret's file.
Result<std::unique_ptr<Engine>> open_engine(std::string_view local_engine,
                                            const std::map<std::string, std::string>& options = {});

}  // namespace onesided
