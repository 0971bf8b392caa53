#include "driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "onesided/base/align.h"

namespace onesided::hixl_abi {

namespace {

constexpr int kMallocHugeOnly = 1;
constexpr std::size_t kKeyBytes = 65;

}  // namespace

Driver Driver::find() {
  Driver driver;
  void* runtime = dlopen("libascendcl.so", RTLD_NOW | RTLD_LOCAL);
  if (!runtime) return driver;
  const auto look_up = [runtime](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(runtime, name));
  };
  look_up(driver.export_key_, "aclrtIpcMemGetExportKey");
  look_up(driver.close_key_, "aclrtIpcMemClose");
  look_up(driver.recent_error_, "aclGetRecentErrMsg");
  look_up(driver.get_context_, "aclrtGetCurrentContext");
  look_up(driver.set_context_, "aclrtSetCurrentContext");
  look_up(driver.malloc_, "aclrtMalloc");
  look_up(driver.free_, "aclrtFree");
  const bool complete = driver.export_key_ && driver.close_key_ && driver.recent_error_ && driver.get_context_ &&
                        driver.set_context_ && driver.malloc_ && driver.free_;
  return complete ? driver : Driver();
}

Result<void> Driver::check_shareable(const Segment& segment) const {
  if (!export_key_)
    return Error(Status::kFailed, "device memory was registered, but no Ascend runtime is loaded to share it");
  char key[kKeyBytes] = {};
  const int code = export_key_(reinterpret_cast<void*>(segment.address), segment.nbytes, key, sizeof(key), 0);
  if (code == 0) {
    // The engine passes the memory on by a way of its own; the key was only asked for the driver's opinion.
    (void)close_key_(key);
    return {};
  }
  return Error(Status::kFailed,
               fmt::format("the driver refused to share device memory va={:#x} len={:#x} (error {}): {}",
                           segment.address, segment.nbytes, code,
                           is_aligned(segment.address | segment.nbytes, kAscendPageBytes)
                               ? "see aclGetRecentErrMsg()"
                               : "start and length must be multiples of 2 MiB; allocate it from "
                                 "MemPool(sub_block_alignment=2097152)"));
}

std::string Driver::take_words() const {
  const char* words = recent_error_ ? recent_error_() : nullptr;
  return words ? words : "";
}

void* Driver::current_context() const {
  void* context = nullptr;
  return get_context_ && get_context_(&context) == 0 ? context : nullptr;
}

void Driver::enter_context(void* context) const {
  if (context) (void)set_context_(context);
}

Result<void*> Driver::allocate(std::uint64_t nbytes) const {
  if (!malloc_) return Error(Status::kUnsupported, "no Ascend runtime is loaded: there is no device memory");
  void* address = nullptr;
  if (const int code = malloc_(&address, nbytes, kMallocHugeOnly); code != 0)
    return Error(Status::kResourceExhausted, fmt::format("aclrtMalloc({} bytes) failed with {}", nbytes, code));
  return address;
}

bool Driver::free(void* address) const { return free_ && free_(address) == 0; }

}  // namespace onesided::hixl_abi
