#include "onesided/node/version.h"

namespace onesided {

std::string_view version() { return "0.1.0"; }

}  // namespace onesided
