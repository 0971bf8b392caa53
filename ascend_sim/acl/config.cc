#include "ascend_sim/acl/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "ascend_sim/acl/sizes.h"
#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

std::string_view environment(const char* name, std::string_view fallback) {
  const char* value = std::getenv(name);
  return value && *value ? std::string_view(value) : fallback;
}

template <typename Integer>
bool parse_integer(std::string_view text, Integer* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  const auto refused = [&] {
    return Error{Status::kParamInvalid,
                 fmt::format("'{}' is not a size in bytes (write 8589934592, 8GiB or 512M)", text)};
  };
  std::string_view number = text;
  if (number.ends_with("iB")) number.remove_suffix(2);
  if (number.ends_with("B")) number.remove_suffix(1);
  std::uint64_t unit = 1;
  if (!number.empty()) {
    switch (number.back()) {
      case 'k':
      case 'K': unit = kKiB; break;
      case 'm':
      case 'M': unit = kMiB; break;
      case 'g':
      case 'G': unit = kGiB; break;
      case 't':
      case 'T': unit = 1024 * kGiB; break;
    }
    if (unit != 1) number.remove_suffix(1);
  }
  std::uint64_t count = 0;
  if (!parse_integer(number, &count) || count == 0) return refused();
  if (count > std::numeric_limits<std::uint64_t>::max() / unit) return refused();
  return count * unit;
}

std::vector<int> parse_visible_devices(std::string_view text, int machine_devices) {
  std::vector<int> visible;
  while (!text.empty()) {
    const auto comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    int device = -1;
    if (!parse_integer(item, &device) || device < 0 || device >= machine_devices) break;
    if (std::find(visible.begin(), visible.end(), device) != visible.end()) break;
    visible.push_back(device);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return visible;
}

Result<Config> Config::from_environment() {
  Config config;
  config.machine = environment("ONESIDED_SIM_MACHINE", "default");
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
  if (config.machine.size() > 32 || !std::all_of(config.machine.begin(), config.machine.end(), plain)) {
    return Error{Status::kParamInvalid,
                 fmt::format("ONESIDED_SIM_MACHINE is '{}', not a name of up to 32 letters, digits, "
                             "'-' and '_'",
                             config.machine)};
  }
  const auto devices = environment("ONESIDED_SIM_DEVICES", "2");
  if (!parse_integer(devices, &config.machine_devices) || config.machine_devices < 1 ||
      config.machine_devices > kMaxDevices) {
    return Error{Status::kParamInvalid,
                 fmt::format("ONESIDED_SIM_DEVICES is '{}', not a number from 1 to {}", devices, kMaxDevices)};
  }
  auto hbm = parse_bytes(environment("ONESIDED_SIM_HBM", "8GiB"));
  if (!hbm.ok()) return hbm.error().with_context("ONESIDED_SIM_HBM");
  config.hbm_bytes = align_down(*hbm, kAscendPageBytes);
  if (config.hbm_bytes == 0) {
    return Error{Status::kParamInvalid, "ONESIDED_SIM_HBM is less than one 2 MiB page"};
  }
  auto faults = FaultPlan::parse(environment("ONESIDED_SIM_FAULTS", ""));
  if (!faults.ok()) return faults.error().with_context("ONESIDED_SIM_FAULTS");
  config.faults = std::move(*faults);
  config.soc_name = environment("ONESIDED_SIM_SOC", "Ascend910B3");
  if (const char* visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES")) {
    config.visible = parse_visible_devices(visible, config.machine_devices);
  } else {
    for (int device = 0; device < config.machine_devices; ++device) config.visible.push_back(device);
  }
  return config;
}

const Result<Config>& Config::active() {
  static const auto* config = new Result<Config>(from_environment());
  return *config;
}

}  // namespace onesided::sim
