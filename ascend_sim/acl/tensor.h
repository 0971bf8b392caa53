// Operators by name speak in descriptors, buffers and attributes; these are their objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace onesided::sim {

// aclDataType, values of the public API.
enum class DataType : std::int32_t {
  kFloat = 0,
  kFloat16 = 1,
  kInt8 = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 6,
  kUint16 = 7,
  kUint32 = 8,
  kInt64 = 9,
  kUint64 = 10,
  kDouble = 11,
  kBool = 12,
  kComplex64 = 16,
  kComplex128 = 17,
  kBfloat16 = 27,
  kComplex32 = 33,
  kHifloat8 = 34,
  kFloat8E5m2 = 35,
  kFloat8E4m3fn = 36,
};

// Bytes of one element; 0 for a type that is not byte-sized or not known.
std::size_t element_bytes(DataType type);
std::string type_name(DataType type);

// aclTensorDesc. Confined to its caller, as the API says.
struct TensorDesc {
  static constexpr std::uint64_t kMagic = 0x74656e736f722d64;
  std::uint64_t magic = kMagic;
  DataType type = DataType::kFloat;
  std::int32_t format = 2;  // ND
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> storage_dims;  // of formats with a layout of their own; not computed with here
  std::int32_t placement = 0;              // 0 device, 1 host
  std::string name;
  std::vector<std::byte> constant;
};

// aclDataBuffer.
struct DataBuffer {
  static constexpr std::uint64_t kMagic = 0x6275666665722d64;
  std::uint64_t magic = kMagic;
  void* address = nullptr;
  std::size_t nbytes = 0;
};

// aclopAttr.
struct Attributes {
  static constexpr std::uint64_t kMagic = 0x617474722d6f706e;
  std::uint64_t magic = kMagic;
  std::map<std::string, std::int64_t> integers;  // also booleans and data types
  std::map<std::string, float> floats;
  std::map<std::string, std::string> strings;
  std::map<std::string, std::vector<std::int64_t>> integer_lists;
  std::map<std::string, std::vector<float>> float_lists;
  std::map<std::string, std::vector<std::vector<std::int64_t>>> integer_list_lists;
};

// The object behind a handle of the API; null when it is not one, or was destroyed.
template <typename T>
T* checked(const void* handle) {
  auto* object = static_cast<T*>(const_cast<void*>(handle));
  return object && object->magic == T::kMagic ? object : nullptr;
}

}  // namespace onesided::sim
