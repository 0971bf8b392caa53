// `onesided sim --trace FILE` shows what a program asked of the runtime and when: one JSON object a line.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "onesided/base/fd.h"

namespace onesided::sim {

// Nanoseconds on the monotonic clock: comparable between processes of one machine.
std::uint64_t trace_now_ns();

// Appends to the file named by ONESIDED_SIM_TRACE ("%p" becomes the process id). Internally synchronized: one write(2)
// a line, so that several processes may share a file.
class Trace {
 public:
  bool enabled() const { return enabled_; }
  void write(std::string_view function, std::uint64_t start_ns, std::uint64_t duration_ns, int code,
             std::string_view notes);

 private:
  friend Trace& trace();
  Trace();

  bool enabled_ = false;
  Fd file_;
};

Trace& trace();

}  // namespace onesided::sim
