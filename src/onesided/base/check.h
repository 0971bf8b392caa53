// A check of an invariant: if it is broken, the process stops at this place, with the values in the message, in every
// build.
#pragma once

#include <fmt/core.h>

#include <string>

namespace onesided::detail {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& text);

}  // namespace onesided::detail

// ONESIDED_CHECK(used <= size, "used={} size={}", used, size): aborts with the text if the condition does not hold.
#define ONESIDED_CHECK(condition, ...)                                                              \
  do {                                                                                              \
    if (!(condition)) [[unlikely]]                                                                  \
      ::onesided::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
