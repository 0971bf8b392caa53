// An engine's counters as JSON, for programs that show or log them.
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>

#include "onesided/node/c_api/objects.h"

using onesided::Engine;
using onesided::Error;
using onesided::Status;
using onesided::c_api::fail;
using onesided::c_api::guarded;

namespace {

// A JSON string. Bytes above 0x7f go through: our texts are UTF-8.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out += '"';
}

template <typename Pairs, typename Show>
std::string object_of(const Pairs& pairs, Show show) {
  std::string out = "{";
  for (const auto& [name, value] : pairs)
    out += fmt::format("{}{}: {}", out.size() > 1 ? ", " : "", quoted(name), show(value));
  return out += '}';
}

std::string peer_of(const onesided::Peer::Stats& peer) {
  return fmt::format(R"({{"transfers": {}, "instance": {}, "bytes": {}, "not_used": {}}})", peer.transfers,
                     quoted(peer.instance.to_string()),
                     object_of(peer.bytes, [](std::uint64_t bytes) { return std::to_string(bytes); }),
                     object_of(peer.not_used, quoted));
}

}  // namespace

extern "C" onesided_status onesided_engine_stats(onesided_engine* engine, char* buffer, size_t capacity,
                                                 size_t* needed) {
  ONESIDED_C_REQUIRE(engine);
  ONESIDED_C_REQUIRE(needed);
  return guarded(__func__, [&]() -> onesided_status {
    const auto stats = engine->engine->stats();
    if (!stats.ok()) return fail(stats.error());
    const auto text = fmt::format(
        R"({{"id": {}, "regions": {}, "guests": {}, "outstanding": {}, "workers": {}, "transports": {}, "peers": {}}})",
        quoted(stats->id), stats->regions, stats->guests, stats->outstanding, stats->workers,
        object_of(stats->transports, quoted), object_of(stats->peers, peer_of));
    *needed = text.size() + 1;
    if (buffer == nullptr || capacity < *needed)
      return fail(
          Error(Status::kParamInvalid, fmt::format("onesided_engine_stats: the text has {} bytes, the buffer {}",
                                                   *needed, buffer == nullptr ? 0 : capacity)));
    std::memcpy(buffer, text.c_str(), *needed);
    return ONESIDED_SUCCESS;
  });
}
