#include "ascend_sim/acl/copy.h"

#include <cstring>

#include "ascend_sim/acl/errors.h"
#include "ascend_sim/acl/runtime.h"
#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

// Plain host memory may be changed as soon as the call returns. Small sources are set aside; the copy of a large one is
// waited for, as pageable memory is on the hardware.
constexpr std::uint64_t kStageUpTo = 1 * kMiB;

enum class Side { kHost, kDevice, kEither };

struct Sides {
  Side to;
  Side from;
};

bool sides_of(MemcpyKind kind, Sides* sides) {
  switch (kind) {
    case MemcpyKind::kHostToHost: *sides = {Side::kHost, Side::kHost}; return true;
    case MemcpyKind::kHostToDevice:
    case MemcpyKind::kHostToBufToDevice: *sides = {Side::kDevice, Side::kHost}; return true;
    case MemcpyKind::kDeviceToHost: *sides = {Side::kHost, Side::kDevice}; return true;
    case MemcpyKind::kDeviceToDevice:
    case MemcpyKind::kInnerDeviceToDevice:
    case MemcpyKind::kInterDeviceToDevice: *sides = {Side::kDevice, Side::kDevice}; return true;
    case MemcpyKind::kDefault: *sides = {Side::kEither, Side::kEither}; return true;
  }
  return false;
}

// Checks one end of a copy; *plain is set for host memory the runtime knows nothing of.
AclError check_end(const char* function, const char* end, Side side, const void* address, std::uint64_t nbytes,
                   std::vector<MappingPtr>* held, bool* plain) {
  if (!address) return fail(kRtParamInvalid, "{}: the {} is null", function, end);
  const MappingPtr first = runtime().memory.find(address);
  *plain = !first;
  if (!first) {
    if (side != Side::kDevice) return kAclOk;
    return fail(kRtParamInvalid, "{}: the {} {} is not device memory", function, end, address);
  }
  // Registered host memory is reachable from the device, so it may stand on either side.
  if (side == Side::kHost && first->on_device()) {
    return fail(kRtParamInvalid, "{}: the {} {} is memory of device {}, not of the host", function, end, address,
                first->device);
  }
  auto pieces = runtime().memory.cover(address, nbytes);
  if (pieces.empty()) {
    if (!first->on_device()) return kAclOk;  // runs on into the program's own memory, which is not ours to judge
    return fail(kRtParamInvalid, "{}: {} bytes from the {} {} run beyond the memory that is there", function, nbytes,
                end, address);
  }
  held->insert(held->end(), pieces.begin(), pieces.end());
  return kAclOk;
}

}  // namespace

void CopyPlan::run() const { std::memmove(to, staged ? staged->data() : from, nbytes); }

AclError plan_copy(const char* function, void* to, std::uint64_t capacity, const void* from, std::uint64_t nbytes,
                   MemcpyKind kind, CopyPlan* plan) {
  Sides sides{};
  if (!sides_of(kind, &sides)) {
    return fail(kRtParamInvalid, "{}: kind {} does not exist", function, static_cast<int>(kind));
  }
  if (nbytes == 0) return fail(kRtParamInvalid, "{}: 0 bytes", function);
  if (nbytes > capacity) return fail(kRtParamInvalid, "{}: {} bytes into a buffer of {}", function, nbytes, capacity);
  plan->to = to;
  plan->from = from;
  plan->nbytes = nbytes;
  bool plain_target = false;
  if (const AclError code = check_end(function, "target", sides.to, to, nbytes, &plan->held, &plain_target))
    return code;
  return check_end(function, "source", sides.from, from, nbytes, &plan->held, &plan->from_plain_host);
}

AclError hold_range(const char* function, const void* address, std::uint64_t nbytes, std::vector<MappingPtr>* held) {
  if (nbytes == 0) return kAclOk;
  auto pieces = runtime().memory.cover(address, nbytes);
  if (pieces.empty()) {
    return fail(kRtParamInvalid, "{}: {} bytes at {} are not device memory", function, nbytes, address);
  }
  held->insert(held->end(), pieces.begin(), pieces.end());
  return kAclOk;
}

AclError queue_copy(Stream& stream, CopyPlan plan) {
  const bool plain = plan.from_plain_host;
  if (plain && plan.nbytes <= kStageUpTo) {
    const auto* bytes = static_cast<const std::byte*>(plan.from);
    plan.staged = std::make_shared<std::vector<std::byte>>(bytes, bytes + plan.nbytes);
  }
  const bool wait = plain && !plan.staged;
  const AclError code = stream.enqueue([plan = std::move(plan)] {
    plan.run();
    return kAclOk;
  });
  return code == kAclOk && wait ? stream.synchronize() : code;
}

}  // namespace onesided::sim
