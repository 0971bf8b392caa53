#include "onesided/node/version.h"

namespace onesided {

std::string_view version() { return ONESIDED_VERSION; }

}  // namespace onesided
