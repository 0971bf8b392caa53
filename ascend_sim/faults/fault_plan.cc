#include "ascend_sim/faults/fault_plan.h"

#include <fmt/core.h>

#include <charconv>
#include <optional>

#include "ascend_sim/acl/sizes.h"

namespace onesided::sim {
namespace {

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// "1in100" or "@3".
std::optional<Chance> chance(std::string_view text) {
  const bool at = text.starts_with('@');
  if (at) text.remove_prefix(1);
  const bool one_in = text.starts_with("1in");
  if (one_in) text.remove_prefix(3);
  const auto value = number(text);
  if (!value || *value == 0 || at == one_in) return std::nullopt;
  return at ? Chance{*value, 0} : Chance{0, *value};
}

// "FUNCTION@3", "FUNCTION@1in100", "1in100", each with ":CODE".
std::optional<CallFault> call_fault(std::string_view text) {
  CallFault fault;
  if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    const auto code = number(text.substr(colon + 1));
    if (!code || *code == 0 || *code > 999'999) return std::nullopt;
    fault.code = static_cast<int>(*code);
    text = text.substr(0, colon);
  }
  std::optional<Chance> when;
  if (const auto at = text.find('@'); at != std::string_view::npos) {
    fault.function = text.substr(0, at);
    const std::string_view rest = text.substr(at + 1);
    when = rest.starts_with("1in") ? chance(rest) : chance(text.substr(at));
    if (fault.function.empty()) return std::nullopt;  // which call of which function?
  } else {
    when = chance(text);
  }
  if (!when) return std::nullopt;
  fault.chance = *when;
  return fault;
}

bool apply(FaultPlan* plan, std::string_view key, std::string_view value) {
  if (key == "seed") {
    const auto seed = number(value);
    if (seed) plan->seed = *seed;
    return seed.has_value();
  }
  if (key == "fail") {
    auto fault = call_fault(value);
    if (fault) plan->calls.push_back(std::move(*fault));
    return fault.has_value();
  }
  if (key == "delay") {
    const auto colon = value.find(':');
    if (colon == std::string_view::npos) return false;
    const auto when = chance(value.substr(0, colon));
    const auto us = number(value.substr(colon + 1));
    if (!when || !us || *us == 0 || *us > 10'000'000) return false;
    plan->delay = *when;
    plan->delay_us_max = *us;
    return true;
  }
  if (key == "lose" || key == "misalign") {
    const auto when = chance(value);
    if (when) (key == "lose" ? plan->lose : plan->misalign) = *when;
    return when.has_value();
  }
  if (key == "cap") {
    const auto bytes = parse_bytes(value);
    if (bytes.ok()) plan->cap_bytes = *bytes;
    return bytes.ok();
  }
  return false;
}

}  // namespace

std::uint64_t fault_hash(std::uint64_t seed, std::string_view what, std::uint64_t number) {
  std::uint64_t hash = 14695981039346656037u ^ seed;
  for (const char c : what) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash += number * 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

bool Chance::hits(std::uint64_t seed, std::string_view what, std::uint64_t count) const {
  if (at != 0) return count == at;
  return one_in != 0 && fault_hash(seed, what, count) % one_in == 0;
}

Result<FaultPlan> FaultPlan::parse(std::string_view text) {
  FaultPlan plan;
  if (text.empty()) return plan;
  if (const auto seed = number(text)) {
    plan.seed = *seed;
    plan.calls.push_back(CallFault{"", Chance{0, 400}, 0});
    plan.delay = Chance{0, 20};
    plan.delay_us_max = 2000;
    return plan;
  }
  while (true) {
    const auto comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos || !apply(&plan, item.substr(0, equals), item.substr(equals + 1))) {
      return Error{Status::kParamInvalid,
                   fmt::format("'{}' is not a fault (a seed, or seed=, fail=, delay=, lose=, misalign=, cap= joined by "
                               "commas; see docs/ascend_sim.md)",
                               item)};
    }
    if (comma == std::string_view::npos) return plan;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace onesided::sim
