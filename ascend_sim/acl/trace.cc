#include "ascend_sim/acl/trace.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "onesided/base/log.h"

namespace onesided::sim {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::uint64_t trace_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

Trace::Trace() {
  const char* configured = std::getenv("ONESIDED_SIM_TRACE");
  if (!configured || !*configured) return;
  std::string path = configured;
  if (const auto at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(::getpid()));
  file_ = Fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  enabled_ = file_.valid();
  if (!enabled_) {
    log_line(LogLevel::kError, fmt::format("ONESIDED_SIM_TRACE: cannot write {}: {}", path, std::strerror(errno)));
  }
}

Trace& trace() {
  static auto* instance = new Trace;  // leaked: calls come while statics are destroyed
  return *instance;
}

void Trace::write(std::string_view function, std::uint64_t start_ns, std::uint64_t duration_ns, int code,
                  std::string_view notes) {
  const std::string line =
      fmt::format(R"({{"call":"{}","pid":{},"tid":{},"start_ns":{},"ns":{},"code":{},"args":"{}"}})"
                  "\n",
                  function, ::getpid(), ::syscall(SYS_gettid), start_ns, duration_ns, code, escaped(notes));
  // A full disk must not stop the program under test; the line is lost.
  (void)!::write(file_.get(), line.data(), line.size());
}

}  // namespace onesided::sim
