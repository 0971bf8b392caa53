// Loads HIXL, the vendor's engine: a C++ class in a library that is neither linked nor available as headers. Its
// functions are found at run time by their mangled names. Object sizes and calling conventions cannot be looked up;
// they are verified once after loading, with guard bytes around the objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onesided/base/result.h"

namespace onesided::ascend {

// The layouts of HIXL's public API, as its callers compile them. Values.
inline constexpr std::size_t kHixlBytes = 8;  // hixl::Hixl: one pointer
struct VendorString {                         // ge::AscendString: a shared pointer to an opaque string
  std::shared_ptr<void> text;
};
struct VendorMemory {  // hixl::MemDesc
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  std::uint8_t reserved[128] = {};
};
struct VendorItem {  // hixl::TransferOpDesc
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
  std::uint64_t nbytes = 0;
};
struct VendorTransferArgs {  // hixl::TransferArgs
  std::uint8_t reserved[128] = {};
};
static_assert(sizeof(VendorString) == 16 && sizeof(VendorMemory) == 144 && sizeof(VendorItem) == 24);
enum class VendorMemType : int { kDevice = 0, kHost = 1 };
enum class VendorOp : int { kRead = 0, kWrite = 1 };
enum class VendorTransferStatus : int { kWaiting = 0, kCompleted = 1, kTimeout = 2, kFailed = 3 };

// Orders option names as the vendor's own operator< does, because the vendor's std::map requires the same order.
struct VendorStringLess {
  bool operator()(const VendorString& a, const VendorString& b) const;
};
using VendorOptions = std::map<VendorString, VendorString, VendorStringLess>;
static_assert(sizeof(VendorOptions) == 48);

// Entry points of hixl::Hixl and ge::AscendString. `self` is the object. A value; valid while its library is.
struct HixlFunctions {
  void (*construct)(void* self) = nullptr;
  void (*destroy)(void* self) = nullptr;
  std::uint32_t (*initialize)(void* self, const VendorString& local_engine, const VendorOptions& options) = nullptr;
  void (*finalize)(void* self) = nullptr;
  std::uint32_t (*register_mem)(void* self, const VendorMemory& memory, VendorMemType type, void*& handle) = nullptr;
  std::uint32_t (*deregister_mem)(void* self, void* handle) = nullptr;
  std::uint32_t (*connect)(void* self, const VendorString& remote, std::int32_t timeout_ms) = nullptr;
  std::uint32_t (*disconnect)(void* self, const VendorString& remote, std::int32_t timeout_ms) = nullptr;
  std::uint32_t (*transfer_sync)(void* self, const VendorString& remote, VendorOp op,
                                 const std::vector<VendorItem>& items, std::int32_t timeout_ms) = nullptr;
  std::uint32_t (*transfer_async)(void* self, const VendorString& remote, VendorOp op,
                                  const std::vector<VendorItem>& items, const VendorTransferArgs& args,
                                  void*& request) = nullptr;
  std::uint32_t (*get_transfer_status)(void* self, void* const& request, VendorTransferStatus& status) = nullptr;

  void (*construct_string)(void* self, const char* text) = nullptr;
  const char* (*string_text)(const void* self) = nullptr;
  bool (*string_less)(const void* self, const void* other) = nullptr;
};

// The functions of the Ascend runtime that a caller of HIXL needs, because HIXL's calls belong to the device context in
// which it was initialized. All null if no runtime is loaded (host memory only).
struct ContextFunctions {
  int (*get_current_context)(void**) = nullptr;
  int (*set_current_context)(void*) = nullptr;
  const char* (*get_recent_error)() = nullptr;
};

// A loaded HIXL. Immutable and shared by all users; never unloaded, because the vendor's threads may still run.
class HixlLibrary {
 public:
  // `path` as for dlopen; "" means $ONESIDED_HIXL_LIBRARY, or "libcann_hixl.so" if that is not set. A name without a
  // folder is also searched for beside the loaded Ascend runtime. NOT_FOUND: cannot be loaded, with the loader's
  // message. UNSUPPORTED: names the missing symbols or the unknown layout. Thread-safe.
  static Result<std::shared_ptr<const HixlLibrary>> load(const std::string& path = "");

  const HixlFunctions& functions() const { return functions_; }
  const ContextFunctions& context() const { return context_; }
  // The file it was loaded from.
  const std::string& file() const { return file_; }

  VendorString make_string(const std::string& text) const;
  VendorOptions make_options(const std::map<std::string, std::string>& options) const;

 private:
  HixlLibrary() = default;
  Result<void> look_up(void* library);
  Result<void> try_layouts() const;

  HixlFunctions functions_;
  ContextFunctions context_;
  std::string file_;
};

}  // namespace onesided::ascend
