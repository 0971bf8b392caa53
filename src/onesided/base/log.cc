#include "onesided/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace onesided {
namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("ONESIDED_LOG");
  const std::string_view name = text ? text : "warn";
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return LogLevel::kWarn;
}

LogLevel active_level() {
  static const LogLevel level = level_from_environment();
  return level;
}

spdlog::logger& logger() {
  // Never destroyed, because threads may log while static objects are destroyed.
  static auto* instance = [] {
    auto* made = new spdlog::logger("onesided", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[%n %P %H:%M:%S.%e %l] %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

bool log_enabled(LogLevel level) { return level >= active_level() && level != LogLevel::kOff; }

void log_line(LogLevel level, std::string_view text) {
  if (!log_enabled(level)) return;
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err, spdlog::level::off};
  logger().log(kLevels[static_cast<int>(level)], text);
}

}  // namespace onesided
