#include "onesided/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace onesided::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& text) {
  // stdio only, because the logger may be broken.
  std::fprintf(stderr, "onesided: broken invariant at %s:%d: %s: %s\n", file, line, condition, text.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace onesided::detail
