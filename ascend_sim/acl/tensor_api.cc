// Descriptors, buffers and attributes, as the public ACL API names them.
#include <fmt/core.h>

#include "ascend_sim/acl/call.h"
#include "ascend_sim/acl/functions.h"
#include "ascend_sim/acl/tensor.h"

namespace onesided::sim {

std::size_t element_bytes(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool:
    case DataType::kHifloat8:
    case DataType::kFloat8E5m2:
    case DataType::kFloat8E4m3fn: return 1;
    case DataType::kFloat16:
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kBfloat16: return 2;
    case DataType::kFloat:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kComplex32: return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kDouble:
    case DataType::kComplex64: return 8;
    case DataType::kComplex128: return 16;
  }
  return 0;
}

std::string type_name(DataType type) {
  switch (type) {
    case DataType::kFloat: return "float32";
    case DataType::kFloat16: return "float16";
    case DataType::kInt8: return "int8";
    case DataType::kInt32: return "int32";
    case DataType::kUint8: return "uint8";
    case DataType::kInt16: return "int16";
    case DataType::kUint16: return "uint16";
    case DataType::kUint32: return "uint32";
    case DataType::kInt64: return "int64";
    case DataType::kUint64: return "uint64";
    case DataType::kDouble: return "float64";
    case DataType::kBool: return "bool";
    case DataType::kComplex64: return "complex64";
    case DataType::kComplex128: return "complex128";
    case DataType::kBfloat16: return "bfloat16";
    case DataType::kComplex32: return "complex32";
    case DataType::kHifloat8: return "hifloat8";
    case DataType::kFloat8E5m2: return "float8_e5m2";
    case DataType::kFloat8E4m3fn: return "float8_e4m3fn";
  }
  return fmt::format("data type {}", static_cast<int>(type));
}

namespace {

constexpr std::size_t kMaxDims = 64;

template <typename T>
void destroy(const void* handle) {
  if (T* object = checked<T>(handle)) {
    object->magic = 0;  // a second destroy of memory not yet reused is noticed
    delete object;
  }
}

// Applies `change` to the descriptor behind a handle.
template <typename Change>
AclError with_desc(const char* function, void* handle, Change change) {
  return api(function, [&] {
    TensorDesc* desc = checked<TensorDesc>(handle);
    return desc ? change(*desc) : fail(kAclInvalidParam, "{}: {} is not a tensor descriptor", function, handle);
  });
}

template <typename Change>
AclError with_attributes(const char* function, void* handle, const char* name, Change change) {
  return api(function, [&] {
    Attributes* attributes = checked<Attributes>(handle);
    if (!attributes || !name) return fail(kAclInvalidParam, "{}: {} are not attributes", function, handle);
    change(*attributes);
    return kAclOk;
  });
}

}  // namespace
}  // namespace onesided::sim

using namespace onesided::sim;  // NOLINT: this file is the C face of the namespace

ONESIDED_SIM_EXPORT void* aclCreateTensorDesc(std::int32_t type, int dim_count, const std::int64_t* dims,
                                              std::int32_t format) {
  if (dim_count < 0 || static_cast<std::size_t>(dim_count) > kMaxDims || (dim_count > 0 && !dims)) return nullptr;
  auto* desc = new TensorDesc;
  desc->type = static_cast<DataType>(type);
  desc->format = format;
  desc->dims.assign(dims, dims + dim_count);
  return desc;
}

ONESIDED_SIM_EXPORT void aclDestroyTensorDesc(const void* desc) { destroy<TensorDesc>(desc); }

ONESIDED_SIM_EXPORT void* aclCreateDataBuffer(void* address, std::size_t nbytes) {
  auto* buffer = new DataBuffer;
  buffer->address = address;
  buffer->nbytes = nbytes;
  return buffer;
}

ONESIDED_SIM_EXPORT AclError aclDestroyDataBuffer(const void* buffer) {
  if (!checked<DataBuffer>(buffer))
    return fail(kAclInvalidParam, "aclDestroyDataBuffer: {} is not a data buffer", buffer);
  destroy<DataBuffer>(buffer);
  return kAclOk;
}

ONESIDED_SIM_EXPORT AclError aclSetTensorFormat(void* desc, std::int32_t format) {
  return with_desc("aclSetTensorFormat", desc, [&](TensorDesc& tensor) {
    tensor.format = format;
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclSetTensorShape(void* desc, int dim_count, const std::int64_t* dims) {
  return with_desc("aclSetTensorShape", desc, [&](TensorDesc& tensor) {
    if (dim_count < 0 || static_cast<std::size_t>(dim_count) > kMaxDims || (dim_count > 0 && !dims)) {
      return fail(kAclInvalidParam, "aclSetTensorShape: {} dimensions", dim_count);
    }
    tensor.storage_dims.assign(dims, dims + dim_count);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT void aclSetTensorDescName(void* desc, const char* name) {
  if (TensorDesc* tensor = checked<TensorDesc>(desc); tensor && name) tensor->name = name;
}

ONESIDED_SIM_EXPORT AclError aclSetTensorPlaceMent(void* desc, std::int32_t placement) {
  return with_desc("aclSetTensorPlaceMent", desc, [&](TensorDesc& tensor) {
    tensor.placement = placement;
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT AclError aclSetTensorConst(void* desc, const void* data, std::size_t nbytes) {
  return with_desc("aclSetTensorConst", desc, [&](TensorDesc& tensor) {
    if (nbytes > 0 && !data) return fail(kAclInvalidParam, "aclSetTensorConst: null data");
    const auto* bytes = static_cast<const std::byte*>(data);
    tensor.constant.assign(bytes, bytes + nbytes);
    return kAclOk;
  });
}

ONESIDED_SIM_EXPORT std::int32_t aclGetTensorDescType(const void* desc) {
  const TensorDesc* tensor = checked<TensorDesc>(desc);
  return tensor ? static_cast<std::int32_t>(tensor->type) : -1;
}

ONESIDED_SIM_EXPORT std::int32_t aclGetTensorDescFormat(const void* desc) {
  const TensorDesc* tensor = checked<TensorDesc>(desc);
  return tensor ? tensor->format : -1;
}

ONESIDED_SIM_EXPORT std::size_t aclGetTensorDescNumDims(const void* desc) {
  const TensorDesc* tensor = checked<TensorDesc>(desc);
  return tensor ? tensor->dims.size() : 0;
}

ONESIDED_SIM_EXPORT AclError aclGetTensorDescDimV2(const void* desc, std::size_t index, std::int64_t* dim) {
  const TensorDesc* tensor = checked<TensorDesc>(desc);
  if (!tensor || !dim || index >= tensor->dims.size()) {
    return fail(kAclInvalidParam, "aclGetTensorDescDimV2: no dimension {}", index);
  }
  *dim = tensor->dims[index];
  return kAclOk;
}

ONESIDED_SIM_EXPORT void* aclopCreateAttr() { return new Attributes; }
ONESIDED_SIM_EXPORT void aclopDestroyAttr(const void* attributes) { destroy<Attributes>(attributes); }

ONESIDED_SIM_EXPORT AclError aclopSetAttrBool(void* attributes, const char* name, std::uint8_t value) {
  return with_attributes("aclopSetAttrBool", attributes, name, [&](Attributes& a) { a.integers[name] = value != 0; });
}
ONESIDED_SIM_EXPORT AclError aclopSetAttrInt(void* attributes, const char* name, std::int64_t value) {
  return with_attributes("aclopSetAttrInt", attributes, name, [&](Attributes& a) { a.integers[name] = value; });
}
ONESIDED_SIM_EXPORT AclError aclopSetAttrDataType(void* attributes, const char* name, std::int32_t value) {
  return with_attributes("aclopSetAttrDataType", attributes, name, [&](Attributes& a) { a.integers[name] = value; });
}
ONESIDED_SIM_EXPORT AclError aclopSetAttrFloat(void* attributes, const char* name, float value) {
  return with_attributes("aclopSetAttrFloat", attributes, name, [&](Attributes& a) { a.floats[name] = value; });
}
ONESIDED_SIM_EXPORT AclError aclopSetAttrString(void* attributes, const char* name, const char* value) {
  return with_attributes("aclopSetAttrString", attributes, name,
                         [&](Attributes& a) { a.strings[name] = value ? value : ""; });
}
ONESIDED_SIM_EXPORT AclError aclopSetAttrListInt(void* attributes, const char* name, int count,
                                                 const std::int64_t* values) {
  return with_attributes("aclopSetAttrListInt", attributes, name,
                         [&](Attributes& a) { a.integer_lists[name].assign(values, values + count); });
}
ONESIDED_SIM_EXPORT AclError aclopSetAttrListBool(void* attributes, const char* name, int count,
                                                  const std::uint8_t* values) {
  return with_attributes("aclopSetAttrListBool", attributes, name,
                         [&](Attributes& a) { a.integer_lists[name].assign(values, values + count); });
}
ONESIDED_SIM_EXPORT AclError aclopSetAttrListFloat(void* attributes, const char* name, int count, const float* values) {
  return with_attributes("aclopSetAttrListFloat", attributes, name,
                         [&](Attributes& a) { a.float_lists[name].assign(values, values + count); });
}
ONESIDED_SIM_EXPORT AclError aclopSetAttrListListInt(void* attributes, const char* name, int count, const int* counts,
                                                     const std::int64_t* const* values) {
  return with_attributes("aclopSetAttrListListInt", attributes, name, [&](Attributes& a) {
    auto& lists = a.integer_list_lists[name];
    lists.clear();
    for (int i = 0; i < count; ++i) lists.emplace_back(values[i], values[i] + counts[i]);
  });
}
