#include "engine_options.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "json_object.h"
#include "onesided/base/align.h"

namespace onesided::hixl_abi {

namespace {

constexpr std::uint64_t kMaxStagingBytes = 64 * kGiB;

Error invalid(std::string_view name, std::string_view value, std::string_view allowed) {
  return {Status::kParamInvalid, fmt::format("option {} = \"{}\": {}", name, value, allowed)};
}

// Decimal digits only, no sign, no space.
std::optional<std::uint64_t> to_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<void> parse_buffer_pool(std::string_view name, std::string_view value, EngineOptions& out) {
  constexpr std::string_view kAllowed = "must be \"<buffers>:<MiB each>\", both above 0 and 64 GiB at most, or \"0:0\"";
  const auto colon = value.find(':');
  if (colon == std::string_view::npos) return invalid(name, value, kAllowed);
  const auto count = to_number(value.substr(0, colon));
  const auto mib = to_number(value.substr(colon + 1));
  if (!count || !mib || (*count == 0) != (*mib == 0)) return invalid(name, value, kAllowed);
  if (*count > 4096 || *mib > kMaxStagingBytes / kMiB || *count * *mib > kMaxStagingBytes / kMiB)
    return invalid(name, value, kAllowed);
  out.staging_buffers = static_cast<std::uint32_t>(*count);
  out.staging_buffer_bytes = *mib * kMiB;
  return {};
}

Result<void> parse_resources(std::string_view name, const std::string& value, EngineOptions& out) {
  if (value.empty()) return {};
  auto members = parse_json_object(value);
  if (!members) return invalid(name, value, members.error().text());
  struct Known {
    const char* key;
    std::uint32_t limit;
    std::uint32_t* field;
  };
  for (const auto& [key, limit, field] :
       {Known{"connect_pool.thread_num", 64, &out.connect_threads},
        Known{"connect_pool.task_queue_capacity", 65536, &out.connect_queue_capacity}}) {
    const auto found = members->find(key);
    if (found == members->end()) continue;
    const auto number = to_number(found->second);
    if (!number || *number == 0 || *number > limit)
      return invalid(name, value, fmt::format("{} must be 1..{}", key, limit));
    *field = static_cast<std::uint32_t>(*number);
  }
  return {};
}

Result<void> parse_one(std::string_view name, const std::string& value, EngineOptions& out) {
  const auto number = to_number(value);
  if (name == "AutoConnect") {
    if (value != "0" && value != "1") return invalid(name, value, "must be \"0\" or \"1\"");
    out.auto_connect = value == "1";
  } else if (name == "BufferPool") {
    return parse_buffer_pool(name, value, out);
  } else if (name == "RdmaTrafficClass") {
    if (!number || *number > 255 || *number % 4 != 0) return invalid(name, value, "must be 0..255 and a multiple of 4");
    out.rdma_traffic_class = static_cast<std::uint32_t>(*number);
  } else if (name == "RdmaServiceLevel") {
    if (!number || *number > 7) return invalid(name, value, "must be 0..7");
    out.rdma_service_level = static_cast<std::uint32_t>(*number);
  } else if (name == "LocalCommRes") {
    if (!value.empty()) {
      if (auto object = parse_json_object(value); !object) return invalid(name, value, object.error().text());
    }
    out.local_comm_res = value;
  } else if (name == "GlobalResourceConfig") {
    return parse_resources(name, value, out);
  } else if (name == "EnableUseFabricMem") {
    if (value == "1")
      return Error(Status::kUnsupported,
                   "option EnableUseFabricMem = \"1\": the simulated machine has no fabric memory");
    if (value != "0") return invalid(name, value, "must be \"0\" or \"1\"");
  } else {
    return Error(Status::kParamInvalid,
                 fmt::format("unknown option {}; known: AutoConnect, BufferPool, RdmaTrafficClass, RdmaServiceLevel, "
                             "LocalCommRes, GlobalResourceConfig, EnableUseFabricMem",
                             name));
  }
  return {};
}

}  // namespace

Result<EngineOptions> EngineOptions::parse(const std::map<std::string, std::string>& options) {
  EngineOptions out;
  for (const auto& [key, value] : options) {
    std::string_view name = key;
    for (const std::string_view prefix : {"adxl.", "hixl."})
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    ONESIDED_TRY(parse_one(name, value, out));
  }
  return out;
}

}  // namespace onesided::hixl_abi
