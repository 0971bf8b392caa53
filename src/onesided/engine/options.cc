#include "onesided/engine/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace onesided {
namespace {

Error bad(std::string_view name, std::string_view value, std::string_view expected) {
  return {Status::kParamInvalid, fmt::format("option {}=\"{}\": expected {}", name, value, expected)};
}

Result<std::uint64_t> parse_number(std::string_view name, std::string_view value, std::uint64_t low,
                                   std::uint64_t high) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < low || number > high)
    return bad(name, value, fmt::format("a number from {} to {}", low, high));
  return number;
}

Result<bool> parse_switch(std::string_view name, std::string_view value) {
  for (const std::string_view yes : {"1", "true", "on", "yes"})
    if (value == yes) return true;
  for (const std::string_view no : {"0", "false", "off", "no"})
    if (value == no) return false;
  return bad(name, value, "on or off");
}

Result<std::vector<std::string>> parse_transports(std::string_view value, const std::vector<std::string>& known) {
  std::string all;
  for (const auto& name : known) all += (all.empty() ? "" : ",") + name;
  std::vector<std::string> names;
  for (std::string_view rest = value; !rest.empty();) {
    const auto comma = rest.find(',');
    std::string name(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    std::erase(name, ' ');
    if (name == "self") continue;  // always available
    if (std::find(known.begin(), known.end(), name) == known.end())
      return bad("transports", value, fmt::format("a list of {}; \"{}\" is not one of them", all, name));
    if (std::find(names.begin(), names.end(), name) != names.end())
      return bad("transports", value, fmt::format("each transport once; \"{}\" is given twice", name));
    names.push_back(std::move(name));
  }
  if (names.empty()) return bad("transports", value, fmt::format("one or more of {}", all));
  return names;
}

}  // namespace

Result<EngineOptions> EngineOptions::parse(const std::map<std::string, std::string>& options,
                                           const std::vector<std::string>& known_transports) {
  EngineOptions parsed;
  parsed.transports = known_transports;
  if (const char* file = std::getenv("ONESIDED_AUTH_SECRET_FILE")) parsed.auth_secret_file = file;
  for (const auto& [name, value] : options) {
    if (name == "transports") {
      ONESIDED_TRY_ASSIGN(names, parse_transports(value, known_transports));
      parsed.transports = std::move(names);
    } else if (name == "auto_connect") {
      ONESIDED_TRY_ASSIGN(on, parse_switch(name, value));
      parsed.auto_connect = on;
    } else if (name == "auth_secret_file") {
      if (value.empty()) return bad(name, value, "the path of a file");
      parsed.auth_secret_file = value;
    } else if (name == "worker_threads") {
      ONESIDED_TRY_ASSIGN(number, parse_number(name, value, 1, 1024));
      parsed.worker_threads = static_cast<std::uint32_t>(number);
    } else if (name == "tcp_streams") {
      ONESIDED_TRY_ASSIGN(number, parse_number(name, value, 1, 64));
      parsed.tcp_streams = static_cast<std::uint32_t>(number);
    } else if (name == "tcp_congestion") {
      if (value.empty()) return bad(name, value, "the name of a congestion control, e.g. cubic");
      parsed.tcp_congestion = value;
    } else if (name == "heartbeat_ms") {
      ONESIDED_TRY_ASSIGN(number, parse_number(name, value, 10, 3'600'000));
      parsed.heartbeat_ms = static_cast<std::uint32_t>(number);
    } else if (name == "max_outstanding") {
      ONESIDED_TRY_ASSIGN(number, parse_number(name, value, 1, 1'000'000));
      parsed.max_outstanding = number;
    } else {
      return Error(
          Status::kParamInvalid,
          fmt::format("unknown option \"{}\"; known: transports, auto_connect, auth_secret_file, worker_threads, "
                      "tcp_streams, tcp_congestion, heartbeat_ms, max_outstanding",
                      name));
    }
  }
  return parsed;
}

}  // namespace onesided
