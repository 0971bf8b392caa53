#include "onesided/base/status.h"

#include <fmt/format.h>

namespace onesided {

std::string_view status_name(Status status) {
  switch (status) {
    case Status::kSuccess: return "SUCCESS";
    case Status::kParamInvalid: return "PARAM_INVALID";
    case Status::kTimeout: return "TIMEOUT";
    case Status::kNotConnected: return "NOT_CONNECTED";
    case Status::kAlreadyConnected: return "ALREADY_CONNECTED";
    case Status::kNotifyFailed: return "NOTIFY_FAILED";
    case Status::kUnsupported: return "UNSUPPORTED";
    case Status::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case Status::kFailed: return "FAILED";
    case Status::kStale: return "STALE";
    case Status::kBusy: return "BUSY";
    case Status::kAddrInUse: return "ADDR_IN_USE";
    case Status::kNotFound: return "NOT_FOUND";
    case Status::kPeerLost: return "PEER_LOST";
    case Status::kAuthFailed: return "AUTH_FAILED";
    case Status::kCancelled: return "CANCELLED";
    case Status::kMisaligned: return "MISALIGNED";
    case Status::kClosed: return "CLOSED";
  }
  return "UNKNOWN";
}

std::string Error::to_string() const {
  return fmt::format("{} ({}): {}", status_name(status_), static_cast<std::uint32_t>(status_), text_);
}

Error Error::with_context(std::string_view where) const { return {status_, fmt::format("{}: {}", where, text_)}; }

}  // namespace onesided
