// Log lines on stderr, never from a performance-critical path. ONESIDED_LOG=debug|info|warn|error|off, default warn.
#pragma once

#include <string_view>

namespace onesided {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// Thread-safe. Costs one comparison if the level is off.
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

}  // namespace onesided
