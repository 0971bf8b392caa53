// Versions, names of statuses, and the text of the last failure of a thread.
#include "onesided/base/status.h"

#include <fmt/format.h>

#include "onesided/node/c_api/objects.h"
#include "onesided/node/version.h"

namespace onesided::c_api {
namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

}  // namespace

onesided_status fail(const Error& error) noexcept {
  try {
    last_error() = error.to_string();
  } catch (const std::bad_alloc&) {
    last_error().clear();  // the status says enough
  }
  return static_cast<onesided_status>(error.status());
}

Error null_argument(const char* function, const char* name) {
  return Error(Status::kParamInvalid, fmt::format("{}: {} is NULL", function, name));
}

}  // namespace onesided::c_api

extern "C" {

const char* onesided_version(void) { return onesided::version().data(); }
uint32_t onesided_abi_version(void) { return ONESIDED_ABI_VERSION; }
const char* onesided_status_name(onesided_status status) {
  return onesided::status_name(static_cast<onesided::Status>(status)).data();
}
const char* onesided_last_error(void) { return onesided::c_api::last_error().c_str(); }

}  // extern "C"
