// What torch_npu's own library of transformer operators (libop_plugin_atb.so) needs of libatb.so to load. The simulated
// runtime computes its operators above this library; one that it does not compute ends here, in an error code.
//
// Declared anew from the symbol names that the library imports; the types stay incomplete.

#include <cstdint>

namespace atb {

class Context;
class Operation;
struct Tensor;

namespace infer {
struct LinearParam;
struct ElewiseParam;
struct RmsNormParam;
struct GroupTopkParam;
struct SelfAttentionParam;
struct PagedAttentionParam;
struct ReshapeAndCacheParam;
struct RopeParam;
}  // namespace infer

// Not 0, which means success.
constexpr int kNotSimulated = 1;

class Utils {
 public:
  static std::uint64_t GetTensorSize(const Tensor& tensor);
};

std::uint64_t Utils::GetTensorSize(const Tensor& /*tensor*/) { return 0; }

int CreateContext(Context** context) {
  *context = nullptr;
  return kNotSimulated;
}

int DestroyContext(Context* /*context*/) { return kNotSimulated; }

int DestroyOperation(Operation* /*operation*/) { return kNotSimulated; }

template <class Parameters>
int CreateOperation(const Parameters& /*parameters*/, Operation** operation) {
  *operation = nullptr;
  return kNotSimulated;
}

template int CreateOperation(const infer::LinearParam&, Operation**);
template int CreateOperation(const infer::ElewiseParam&, Operation**);
template int CreateOperation(const infer::RmsNormParam&, Operation**);
template int CreateOperation(const infer::GroupTopkParam&, Operation**);
template int CreateOperation(const infer::SelfAttentionParam&, Operation**);
template int CreateOperation(const infer::PagedAttentionParam&, Operation**);
template int CreateOperation(const infer::ReshapeAndCacheParam&, Operation**);
template int CreateOperation(const infer::RopeParam&, Operation**);

}  // namespace atb
