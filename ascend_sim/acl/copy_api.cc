// Copies and fills of device memory, as the public ACL API names them.
#include <cstring>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/copy.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/runtime.h"

namespace onesided::sim {
namespace {

void note_copy(const void* to, const void* from, std::size_t nbytes, std::int32_t kind) {
  ApiCall::note("nbytes={} kind={} to={} from={}", nbytes, kind, to, from);
}

AclError copy_now(const char* function, void* to, std::size_t capacity, const void* from, std::size_t nbytes,
                  std::int32_t kind) {
  note_copy(to, from, nbytes, kind);
  CopyPlan plan;
  if (const AclError code = plan_copy(function, to, capacity, from, nbytes, static_cast<MemcpyKind>(kind), &plan))
    return code;
  // A synchronous copy obeys the devices it touches, not their streams.
  for (const MappingPtr& mapping : plan.held) {
    if (!mapping->on_device()) continue;
    if (const AclError sticky = runtime().device(mapping->device).sticky_error()) return sticky;
  }
  plan.run();
  return kAclOk;
}

AclError copy_later(const char* function, void* to, std::size_t capacity, const void* from, std::size_t nbytes,
                    std::int32_t kind, void* stream) {
  note_copy(to, from, nbytes, kind);
  const auto queue = stream_of(stream, function);
  if (!queue) return kRtStreamContext;
  CopyPlan plan;
  if (const AclError code = plan_copy(function, to, capacity, from, nbytes, static_cast<MemcpyKind>(kind), &plan))
    return code;
  return queue_copy(*queue, std::move(plan));
}

AclError check_fill(const char* function, void* address, std::size_t capacity, std::size_t nbytes,
                    std::vector<MappingPtr>* held) {
  ApiCall::note("nbytes={} address={}", nbytes, address);
  if (nbytes == 0 || nbytes > capacity)
    return fail(kRtParamInvalid, "{}: {} bytes into a buffer of {}", function, nbytes, capacity);
  return hold_range(function, address, nbytes, held);
}

struct Batch {
  void** to;
  std::size_t* capacity;
  void** from;
  std::size_t* nbytes;
  std::size_t count;
  MemcpyBatchAttr* attributes;
  std::size_t* attribute_starts;
  std::size_t attribute_count;
  std::size_t* failed_at;
};

bool location_fits(const MemLocation& location, const void* address) {
  const MappingPtr mapping = runtime().memory.find(address);
  const bool on_device = mapping && mapping->on_device();
  if (location.type == MemLocationType::kDevice) return on_device && mapping->device == static_cast<int>(location.id);
  return !on_device;
}

// Plans every item before anything moves. attribute_starts[i]: the first item that attributes[i] speaks of.
AclError plan_batch(const char* function, const Batch& batch, std::vector<CopyPlan>* plans) {
  if (batch.failed_at) *batch.failed_at = static_cast<std::size_t>(-1);
  if (!batch.to || !batch.capacity || !batch.from || !batch.nbytes || batch.count == 0 || !batch.attributes ||
      !batch.attribute_starts || batch.attribute_count == 0 || batch.attribute_starts[0] != 0) {
    return fail(kRtParamInvalid, "{}: an empty batch, or attributes that do not start with the first item", function);
  }
  std::size_t attribute = 0;
  for (std::size_t item = 0; item < batch.count; ++item) {
    while (attribute + 1 < batch.attribute_count && batch.attribute_starts[attribute + 1] <= item) ++attribute;
    const auto refused = [&](AclError code) {
      if (batch.failed_at) *batch.failed_at = item;
      return code;
    };
    if (!location_fits(batch.attributes[attribute].dst, batch.to[item]) ||
        !location_fits(batch.attributes[attribute].src, batch.from[item])) {
      return refused(fail(kRtParamInvalid, "{}: item {} is not where its attributes say", function, item));
    }
    CopyPlan plan;
    if (const AclError code = plan_copy(function, batch.to[item], batch.capacity[item], batch.from[item],
                                        batch.nbytes[item], MemcpyKind::kDefault, &plan)) {
      return refused(code);
    }
    plans->push_back(std::move(plan));
  }
  return kAclOk;
}

}  // namespace
}  // namespace onesided::sim

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT AclError aclrtMemcpy(void* to, std::size_t capacity, const void* from, std::size_t nbytes,
                                         std::int32_t kind) {
  return api("aclrtMemcpy", [&] { return copy_now("aclrtMemcpy", to, capacity, from, nbytes, kind); });
}

ONESIDED_SIM_EXPORT AclError aclrtMemcpyAsync(void* to, std::size_t capacity, const void* from, std::size_t nbytes,
                                              std::int32_t kind, void* stream) {
  return api("aclrtMemcpyAsync",
             [&] { return copy_later("aclrtMemcpyAsync", to, capacity, from, nbytes, kind, stream); });
}

// "With condition" lets the hardware decide whether plain host memory makes the copy synchronous; here it always may.
ONESIDED_SIM_EXPORT AclError aclrtMemcpyAsyncWithCondition(void* to, std::size_t capacity, const void* from,
                                                           std::size_t nbytes, std::int32_t kind, void* stream) {
  return api("aclrtMemcpyAsyncWithCondition",
             [&] { return copy_later("aclrtMemcpyAsyncWithCondition", to, capacity, from, nbytes, kind, stream); });
}

ONESIDED_SIM_EXPORT AclError aclrtMemcpyBatch(void** to, std::size_t* capacity, void** from, std::size_t* nbytes,
                                              std::size_t count, MemcpyBatchAttr* attributes,
                                              std::size_t* attribute_starts, std::size_t attribute_count,
                                              std::size_t* failed_at) {
  return api("aclrtMemcpyBatch", [&] {
    ApiCall::note("count={}", count);
    std::vector<CopyPlan> plans;
    const Batch batch{to, capacity, from, nbytes, count, attributes, attribute_starts, attribute_count, failed_at};
    if (const AclError code = plan_batch("aclrtMemcpyBatch", batch, &plans)) return code;
    for (const CopyPlan& plan : plans) plan.run();
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtMemcpyBatchAsync(void** to, std::size_t* capacity, void** from, std::size_t* nbytes,
                                                   std::size_t count, MemcpyBatchAttr* attributes,
                                                   std::size_t* attribute_starts, std::size_t attribute_count,
                                                   std::size_t* failed_at, void* stream) {
  return api("aclrtMemcpyBatchAsync", [&] {
    ApiCall::note("count={}", count);
    const auto queue = stream_of(stream, "aclrtMemcpyBatchAsync");
    if (!queue) return kRtStreamContext;
    std::vector<CopyPlan> plans;
    const Batch batch{to, capacity, from, nbytes, count, attributes, attribute_starts, attribute_count, failed_at};
    if (const AclError code = plan_batch("aclrtMemcpyBatchAsync", batch, &plans)) return code;
    for (CopyPlan& plan : plans) {
      if (const AclError code = queue_copy(*queue, std::move(plan))) return code;
    }
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtMemset(void* address, std::size_t capacity, std::int32_t value, std::size_t nbytes) {
  return api("aclrtMemset", [&] {
    std::vector<MappingPtr> held;
    if (const AclError code = check_fill("aclrtMemset", address, capacity, nbytes, &held)) return code;
    std::memset(address, value, nbytes);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclrtMemsetAsync(void* address, std::size_t capacity, std::int32_t value,
                                              std::size_t nbytes, void* stream) {
  return api("aclrtMemsetAsync", [&] {
    const auto queue = stream_of(stream, "aclrtMemsetAsync");
    if (!queue) return kRtStreamContext;
    std::vector<MappingPtr> held;
    if (const AclError code = check_fill("aclrtMemsetAsync", address, capacity, nbytes, &held)) return code;
    return queue->enqueue([=, held = std::move(held)] {
      std::memset(address, value, nbytes);
      return kAclOk;
    });
  });
}
