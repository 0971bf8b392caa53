#include "ascend_sim/acl/errors.h"

#include <set>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/functions.h"
#include "onesided/base/log.h"
#include "onesided/base/mutex.h"

namespace onesided::sim {
namespace {

struct LastErrors {
  Mutex mutex;
  std::string unread ONESIDED_GUARDED_BY(mutex);
  std::set<std::string, std::less<>> named ONESIDED_GUARDED_BY(mutex);
};

LastErrors& last_errors() {
  static auto* errors = new LastErrors;  // leaked: threads may fail while statics are destroyed
  return *errors;
}

thread_local std::string thread_error;
thread_local std::string thread_answer;

}  // namespace

AclError fail_with(AclError code, std::string text) {
  std::string line = fmt::format("[onesided simulated runtime] {} (error {})", text, code);
  if (log_enabled(LogLevel::kInfo)) log_line(LogLevel::kInfo, line);
  LastErrors& errors = last_errors();
  MutexLock lock(errors.mutex);
  errors.unread = line;
  thread_error = std::move(line);
  return code;
}

AclError unsupported(const char* function) {
  LastErrors& errors = last_errors();
  bool first = false;
  {
    MutexLock lock(errors.mutex);
    first = errors.named.emplace(function).second;
  }
  if (first) log_line(LogLevel::kWarn, fmt::format("the simulated Ascend runtime does not have {}", function));
  return fail(kRtFeatureNotSupport, "{} is not part of the simulated runtime", function);
}

const char* take_recent_error() {
  LastErrors& errors = last_errors();
  MutexLock lock(errors.mutex);
  thread_answer = thread_error.empty() ? errors.unread : thread_error;
  thread_error.clear();
  errors.unread.clear();
  return thread_answer.empty() ? nullptr : thread_answer.c_str();
}

std::string peek_recent_error() { return thread_error; }

}  // namespace onesided::sim

ONESIDED_SIM_EXPORT const char* aclGetRecentErrMsg() { return onesided::sim::take_recent_error(); }
