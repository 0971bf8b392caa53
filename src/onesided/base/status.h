// Status codes and errors of the whole project, a closed set. Codes that exist in HIXL have its public names and
// values, so that programs written for HIXL need no change; other codes have a separate range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace onesided {

// Values below 600000 are HIXL's public API; values from 910001 on are onesided's and are documented in docs/errors.md.
enum class Status : std::uint32_t {
  kSuccess = 0,
  kParamInvalid = 103900,
  kTimeout = 103901,
  kNotConnected = 103902,
  kAlreadyConnected = 103903,
  kNotifyFailed = 103904,
  kUnsupported = 103905,
  kResourceExhausted = 203900,
  kFailed = 503900,
  kStale = 910001,       // the region was deregistered, or its engine has ended or was replaced
  kBusy = 910002,        // still in use; repeat the call later
  kAddrInUse = 910003,   // another listener owns the address
  kNotFound = 910004,    // no such handle, pool, peer or object
  kPeerLost = 910005,    // the peer's process ended or the connection broke
  kAuthFailed = 910006,  // the peer could not be authenticated
  kCancelled = 910007,   // ended at the caller's request
  kMisaligned = 910008,  // Ascend device memory that the driver's 2 MiB rule refuses
  kClosed = 910009,      // the engine was closed, or this is a forked child of its process
};

// "PARAM_INVALID", "STALE", ...: the public spelling, the same in C++, Python and logs. "UNKNOWN" for other values.
std::string_view status_name(Status status);

// A status code and a text: what failed, where, and what to do. A value.
class [[nodiscard]] Error {
 public:
  Error(Status status, std::string text) : status_(status), text_(std::move(text)) {}

  Status status() const { return status_; }
  const std::string& text() const { return text_; }
  // "STALE (910001): region 3 of 127.0.0.1:4021 was deregistered"
  std::string to_string() const;
  // Puts `where` before the text: "register_mem: ...". Keeps the code.
  Error with_context(std::string_view where) const;

  friend bool operator==(const Error&, const Error&) = default;

 private:
  Status status_;
  std::string text_;
};

}  // namespace onesided
