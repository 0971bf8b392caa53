// Opens an engine with all devices and transports of this build. The entry point for programs and bindings.
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

// The transports of an engine if the option is not set: all of them, but "ascend" only with real NPUs.
std::vector<std::string> default_transports();

// Errors: PARAM_INVALID, with the option or the address; ADDR_IN_USE; NOT_FOUND: the secret's file does not exist.
Result<std::unique_ptr<Engine>> open_engine(std::string_view local_engine,
                                            const std::map<std::string, std::string>& options = {});

}  // namespace onesided
