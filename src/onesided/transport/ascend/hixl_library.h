// The vendor's engine is a C++ class in a library that we neither link nor have headers of. It is loaded at run
// time by its mangled names; what cannot be looked up (object sizes, calling conventions) is tried out once, with guard
// bytes around, before any program trusts it.
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
struct VendorString {                         // ge::AscendString: a shared pointer to a string we never look into
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

// Orders option names as the vendor's own operator< does. Its map is the vendor's std::map: the order must be the same.
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

// What of the Ascend runtime a caller of HIXL needs: its calls belong to the device context they were initialized in.
// All null where no runtime is loaded (host memory only).
struct ContextFunctions {
  int (*get_current_context)(void**) = nullptr;
  int (*set_current_context)(void*) = nullptr;
  const char* (*get_recent_error)() = nullptr;
};

// A loaded HIXL. Immutable, shared by all that use it; never unloaded (the vendor's threads may outlive us).
class HixlLibrary {
 public:
  // `path` as dlopen takes it; "" means $ONESIDED_HIXL_LIBRARY, else "libcann_hixl.so". A name without a folder is also
  // looked for beside the Ascend runtime that is loaded.
  // NOT_FOUND: cannot be loaded, with the loader's words. UNSUPPORTED: names the symbols that are missing, or the
  // layout that is not the one we know. Thread-safe.
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
