// The one generic entry for operators by name. A call is checked whole, its host tensors are copied, its device
// tensors are kept; then it is queued. What cannot run names itself.
#include <pthread.h>

#include <cstring>
#include <memory>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/copy.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/runtime.h"
#include "ascend_sim/acl/tensor.h"
#include "ascend_sim/ops/operator.h"

namespace onesided::sim {
namespace {

// What a queued operator keeps alive.
struct Kept {
  std::vector<MappingPtr> mappings;
  std::vector<std::vector<std::byte>> host_tensors;
};

AclError make_operand(const char* name, const void* desc_handle, const void* buffer_handle, bool output, Kept* kept,
                      Operand* operand) {
  const TensorDesc* desc = checked<TensorDesc>(desc_handle);
  const DataBuffer* buffer = checked<DataBuffer>(buffer_handle);
  if (!desc || !buffer) return fail(kAclInvalidParam, "operator {}: a tensor has no descriptor or no buffer", name);
  operand->type = desc->type;
  operand->dims = desc->dims;
  operand->nbytes = buffer->nbytes;
  operand->data = static_cast<std::byte*>(buffer->address);
  const MappingPtr mapping = runtime().memory.find(buffer->address);
  if (mapping && mapping->on_device()) {
    if (const AclError code = hold_range(name, buffer->address, buffer->nbytes, &kept->mappings)) return code;
    // A view may reach beyond the buffer it is described by (the real half of a complex tensor does); what bounds it is
    // the memory that is there, as on the hardware.
    const Mapping& last = buffer->nbytes > 0 ? *kept->mappings.back() : *mapping;
    if (buffer->nbytes == 0) kept->mappings.push_back(mapping);
    operand->nbytes = last.base + last.nbytes - reinterpret_cast<std::uint64_t>(buffer->address);
    return kAclOk;
  }
  if (output) {
    return buffer->nbytes == 0 ? kAclOk : fail(kAclInvalidParam, "operator {}: an output is not device memory", name);
  }
  if (!desc->constant.empty()) {
    kept->host_tensors.push_back(desc->constant);
  } else {
    if (!buffer->address && buffer->nbytes) return fail(kAclInvalidParam, "operator {}: an input is null", name);
    const auto* bytes = static_cast<const std::byte*>(buffer->address);
    kept->host_tensors.emplace_back(bytes, bytes + buffer->nbytes);
  }
  operand->data = kept->host_tensors.back().data();
  operand->nbytes = kept->host_tensors.back().size();
  return kAclOk;
}

// torch_npu's own queue runs operators on a thread that it names "acl_thread"; no caller gets an error from there, and
// the queue drops later work. If the device did not stop, later results would be silently wrong.
bool on_torch_queue_thread() {
  char name[16] = {};
  return ::pthread_getname_np(::pthread_self(), name, sizeof(name)) == 0 && std::strcmp(name, "acl_thread") == 0;
}

AclError refused(Stream& stream, AclError code, const std::string& text) {
  if (on_torch_queue_thread()) stream.device().poison(code, text.c_str());
  return fail(code, "{}", text);
}

AclError execute(const char* name, int input_count, const void* const* input_descs, const void* const* inputs,
                 int output_count, const void* const* output_descs, const void* const* outputs, const void* attributes,
                 void* stream_handle) {
  if (!name || input_count < 0 || output_count < 0 || (input_count && (!input_descs || !inputs)) ||
      (output_count && (!output_descs || !outputs))) {
    return fail(kAclInvalidParam, "an operator without name or tensors");
  }
  ApiCall::note("operator={}", name);
  const auto stream = stream_of(stream_handle, name);
  if (!stream) return kRtStreamContext;
  auto kept = std::make_shared<Kept>();
  OperatorCall call{name, std::vector<Operand>(input_count), std::vector<Operand>(output_count),
                    checked<Attributes>(attributes)};
  for (int i = 0; i < input_count; ++i) {
    if (make_operand(name, input_descs[i], inputs[i], false, kept.get(), &call.inputs[i]) != kAclOk) {
      return refused(*stream, kAclInvalidParam, peek_recent_error());
    }
  }
  for (int i = 0; i < output_count; ++i) {
    if (make_operand(name, output_descs[i], outputs[i], true, kept.get(), &call.outputs[i]) != kAclOk) {
      return refused(*stream, kAclInvalidParam, peek_recent_error());
    }
  }
  auto work = prepare_operator(call);
  if (!work.ok()) {
    const bool unknown = work.status() == Status::kNotFound;
    return refused(*stream, unknown ? kAclOpNotFound : kAclGeFailure,
                   unknown ? work.error().text() : fmt::format("operator {}: {}", name, work.error().text()));
  }
  return stream->enqueue([work = std::move(*work), kept = std::move(kept)] {
    work();
    return kAclOk;
  });
}

}  // namespace
}  // namespace onesided::sim

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT AclError aclopCompileAndExecute(const char* name, int input_count, const void* const* input_descs,
                                                    const void* const* inputs, int output_count,
                                                    const void* const* output_descs, void* const* outputs,
                                                    const void* attributes, std::int32_t /*engine*/,
                                                    std::int32_t /*compile*/, const char* /*path*/, void* stream) {
  return api("aclopCompileAndExecute", [&] {
    return execute(name, input_count, input_descs, inputs, output_count, output_descs, outputs, attributes, stream);
  });
}

// V2 answers the outputs' real shapes; those of memory operators are the ones that were given.
ONESIDED_SIM_EXPORT AclError aclopCompileAndExecuteV2(const char* name, int input_count, void** input_descs,
                                                      void** inputs, int output_count, void** output_descs,
                                                      void** outputs, void* attributes, std::int32_t /*engine*/,
                                                      std::int32_t /*compile*/, const char* /*path*/, void* stream) {
  return api("aclopCompileAndExecuteV2", [&] {
    return execute(name, input_count, input_descs, inputs, output_count, output_descs, outputs, attributes, stream);
  });
}
