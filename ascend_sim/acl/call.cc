#include "ascend_sim/acl/call.h"

#include "ascend_sim/acl/config.h"
#include "ascend_sim/acl/fork.h"
#include "ascend_sim/acl/trace.h"
#include "ascend_sim/faults/faults.h"

namespace onesided::sim {
namespace {

thread_local ApiCall* innermost = nullptr;

AclError entry_refusal(const char* name) {
  if (forked_after_use()) {
    return fail(
        kRtInternal,
        "{}: this process was forked from one that had already used the simulated runtime; start it with spawn, "
        "or fork before the first call",
        name);
  }
  const auto& config = Config::active();
  if (!config.ok()) return fail(kAclInvalidParam, "{}: {}", name, config.error().text());
  return faults().refusal(name);
}

}  // namespace

ApiCall* ApiCall::current() { return innermost; }

ApiCall::ApiCall(const char* name) : name_(name), outer_(innermost) {
  innermost = this;
  traced_ = trace().enabled();
  if (traced_) start_ns_ = trace_now_ns();
  refusal_ = entry_refusal(name);
}

ApiCall::~ApiCall() {
  innermost = outer_;
  if (traced_) trace().write(name_, start_ns_, trace_now_ns() - start_ns_, code_, notes_);
}

}  // namespace onesided::sim
