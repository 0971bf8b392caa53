#include "onesided/transport/ascend/hixl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace onesided::ascend {

namespace {

// The comparator cannot have state (the map type is the vendor's), so this variable names the library in use while a
// map is built. The vendor's own code compares with its own operator.
thread_local bool (*t_string_less)(const void*, const void*) = nullptr;

constexpr std::uint8_t kGuard = 0xA5;

// Storage for an object of N bytes, followed by guard bytes.
template <std::size_t N>
struct alignas(16) Guarded {
  std::array<std::uint8_t, N + 64> bytes;
  Guarded() {
    bytes.fill(kGuard);
    std::fill_n(bytes.begin(), N, std::uint8_t{0});
  }
  void* get() { return bytes.data(); }
  bool intact() const {
    return std::all_of(bytes.begin() + N, bytes.end(), [](std::uint8_t b) { return b == kGuard; });
  }
};

std::string file_of(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name || !*map->l_name) return "?";
  return map->l_name;
}

// Loads from the folder of the loaded Ascend runtime, which a process may have loaded by its path. If it fails: null,
// and dlerror() describes the last attempt.
void* load_beside_runtime(const std::string& name) {
  void* runtime = dlopen("libascendcl.so", RTLD_NOW | RTLD_NOLOAD);
  if (!runtime) {
    (void)dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // sets dlerror() again
    return nullptr;
  }
  const std::string file = file_of(runtime);
  dlclose(runtime);
  const std::string beside = file.substr(0, file.rfind('/') + 1) + name;
  return dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
}

template <typename F>
void find(void* library, const char* name, F& function, std::vector<std::string>& missing) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) missing.emplace_back(name);
}

}  // namespace

bool VendorStringLess::operator()(const VendorString& a, const VendorString& b) const { return t_string_less(&a, &b); }

Result<std::shared_ptr<const HixlLibrary>> HixlLibrary::load(const std::string& path) {
  std::string name = path;
  if (name.empty()) {
    const char* chosen = std::getenv("ONESIDED_HIXL_LIBRARY");
    name = chosen && *chosen ? chosen : "libcann_hixl.so";
  }
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library && name.find('/') == std::string::npos) library = load_beside_runtime(name);
  if (!library) {
    const char* why = dlerror();
    return Error(Status::kNotFound,
                 fmt::format("the vendor's engine library cannot be loaded: {}. Install CANN with HIXL and source its "
                             "set_env.sh, or name the file in ONESIDED_HIXL_LIBRARY",
                             why ? why : name.c_str()));
  }
  std::shared_ptr<HixlLibrary> loaded(new HixlLibrary);
  loaded->file_ = file_of(library);
  ONESIDED_TRY(loaded->look_up(library));
  ONESIDED_TRY(loaded->try_layouts());
  return std::shared_ptr<const HixlLibrary>(std::move(loaded));
}

Result<void> HixlLibrary::look_up(void* library) {
  std::vector<std::string> missing;
  HixlFunctions& f = functions_;
  find(library, "_ZN4hixl4HixlC1Ev", f.construct, missing);
  find(library, "_ZN4hixl4HixlD1Ev", f.destroy, missing);
  find(library, "_ZN4hixl4Hixl10InitializeERKN2ge12AscendStringERKSt3mapIS2_S2_St4lessIS2_ESaISt4pairIS3_S2_EEE",
       f.initialize, missing);
  find(library, "_ZN4hixl4Hixl8FinalizeEv", f.finalize, missing);
  find(library, "_ZN4hixl4Hixl11RegisterMemERKNS_7MemDescENS_7MemTypeERPv", f.register_mem, missing);
  find(library, "_ZN4hixl4Hixl13DeregisterMemEPv", f.deregister_mem, missing);
  find(library, "_ZN4hixl4Hixl7ConnectERKN2ge12AscendStringEi", f.connect, missing);
  find(library, "_ZN4hixl4Hixl10DisconnectERKN2ge12AscendStringEi", f.disconnect, missing);
  find(library,
       "_ZN4hixl4Hixl12TransferSyncERKN2ge12AscendStringENS_10TransferOpERKSt6vectorINS_14TransferOpDescESaIS7_EEi",
       f.transfer_sync, missing);
  find(library,
       "_ZN4hixl4Hixl13TransferAsyncERKN2ge12AscendStringENS_10TransferOpERKSt6vectorINS_14TransferOpDescESaIS7_EERKNS_"
       "12TransferArgsERPv",
       f.transfer_async, missing);
  find(library, "_ZN4hixl4Hixl17GetTransferStatusERKPvRNS_14TransferStatusE", f.get_transfer_status, missing);
  // ge::AscendString lives in a library that HIXL depends on; dlsym on HIXL's handle finds it there.
  find(library, "_ZN2ge12AscendStringC1EPKc", f.construct_string, missing);
  find(library, "_ZNK2ge12AscendString9GetStringEv", f.string_text, missing);
  find(library, "_ZNK2ge12AscendStringltERKS0_", f.string_less, missing);
  if (!missing.empty())
    return Error(Status::kUnsupported, fmt::format("{} is not a HIXL that this build supports: it lacks {}. Use a CANN "
                                                   "release whose hixl::Hixl has them, or a newer onesided",
                                                   file_, fmt::join(missing, ", ")));
  if (void* runtime = dlopen("libascendcl.so", RTLD_NOW | RTLD_NOLOAD)) {
    std::vector<std::string> absent;
    find(runtime, "aclrtGetCurrentContext", context_.get_current_context, absent);
    find(runtime, "aclrtSetCurrentContext", context_.set_current_context, absent);
    find(runtime, "aclGetRecentErrMsg", context_.get_recent_error, absent);
    dlclose(runtime);
    if (!absent.empty())
      return Error(Status::kUnsupported,
                   fmt::format("{}: the Ascend runtime beside it lacks {}", file_, fmt::join(absent, ", ")));
  }
  return {};
}

Result<void> HixlLibrary::try_layouts() const {
  const auto differs = [this](std::string_view what) {
    return Error(Status::kUnsupported, fmt::format("{} is not a HIXL that this build supports: {}", file_, what));
  };
  {
    Guarded<sizeof(VendorString)> storage;
    functions_.construct_string(storage.get(), "onesided probe");
    if (!storage.intact()) return differs("ge::AscendString is larger than 16 bytes");
    auto* string = reinterpret_cast<VendorString*>(storage.get());
    const bool same = std::strcmp(functions_.string_text(string), "onesided probe") == 0;
    const VendorString copy = *string;  // a second owner, as a caller's inline code would make it
    const bool counted = copy.text.use_count() == 2;
    string->~VendorString();
    if (!same || !counted || std::strcmp(functions_.string_text(&copy), "onesided probe") != 0)
      return differs("ge::AscendString is not a shared string");
  }
  const VendorString a = make_string("a");
  const VendorString b = make_string("b");
  if (!functions_.string_less(&a, &b) || functions_.string_less(&b, &a) || functions_.string_less(&a, &a))
    return differs("ge::AscendString does not order \"a\" before \"b\"");
  Guarded<kHixlBytes> storage;
  functions_.construct(storage.get());
  const bool intact = storage.intact();
  functions_.destroy(storage.get());
  if (!intact || !storage.intact()) return differs("hixl::Hixl is larger than 8 bytes");
  return {};
}

VendorString HixlLibrary::make_string(const std::string& text) const {
  alignas(VendorString) std::byte storage[sizeof(VendorString)] = {};
  functions_.construct_string(storage, text.c_str());
  auto* made = reinterpret_cast<VendorString*>(storage);
  VendorString out = std::move(*made);
  made->~VendorString();
  return out;
}

VendorOptions HixlLibrary::make_options(const std::map<std::string, std::string>& options) const {
  t_string_less = functions_.string_less;
  VendorOptions out;
  for (const auto& [name, value] : options) out.emplace(make_string(name), make_string(value));
  t_string_less = nullptr;
  return out;
}

}  // namespace onesided::ascend
