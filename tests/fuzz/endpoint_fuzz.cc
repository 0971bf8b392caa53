// Addresses are typed by people. What parses must print to something that parses to the same.
#include "fuzz_target.h"
#include "onesided/base/check.h"
#include "onesided/engine/endpoint.h"

namespace onesided {
namespace {

void check(std::string_view text) {
  const auto endpoint = Endpoint::parse(text);
  if (!endpoint) return;
  const auto printed = endpoint->to_string();
  const auto again = Endpoint::parse(printed);
  ONESIDED_CHECK(again.ok() && *again == *endpoint, "'{}' printed as '{}'", text, printed);
  ONESIDED_CHECK(endpoint->has_port || endpoint->port == 0, "'{}' has a port and has none", text);
  const auto numeric = resolve_numeric(*endpoint);
  if (numeric) ONESIDED_CHECK(numeric->port() == endpoint->port, "'{}' resolves to port {}", text, numeric->port());
}

std::vector<std::uint8_t> seed(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace
}  // namespace onesided

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  onesided::check({reinterpret_cast<const char*>(data), size});
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using onesided::seed;
  return {seed("127.0.0.1:5000"),           seed("[::1]:5000"),     seed("::1"),
          seed("[fe80::1%lo]:5000"),        seed("localhost:5000"), seed("2605:340::1"),
          seed("[::ffff:127.0.0.1]:65535"), seed("host.name")};
}
