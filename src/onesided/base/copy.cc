#include "onesided/base/copy.h"

#include <cstring>

namespace onesided {

void copy_bytes(void* to, const void* from, std::uint64_t nbytes, CopyKind) { std::memcpy(to, from, nbytes); }

}  // namespace onesided
