// The driver's rule for device memory that other processes shall reach is asked of the driver itself, at connect,
// as the vendor's engine does; so a program hears the same refusal in the same words as on hardware.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory_table.h"
#include "onesided/base/result.h"

namespace onesided::hixl_abi {

// What the engine asks of the Ascend runtime beside it. A value; its functions are valid until the process ends. Empty
// where there is no runtime: then there is no device memory either.
class Driver {
 public:
  // The runtime this process has loaded, else the one that lies in our own folder.
  static Driver find();

  // FAILED: the driver will not let others reach this device memory. Its words are left for the calling thread's
  // aclGetRecentErrMsg(), and stay there.
  Result<void> check_shareable(const Segment& segment) const;
  // Takes them.
  std::string take_words() const;

  // The device context of the calling thread, to be entered by threads that work for it. Null without a runtime.
  void* current_context() const;
  void enter_context(void* context) const;

  // Device memory on the current device, aligned as registration wants it. RESOURCE_EXHAUSTED, UNSUPPORTED (no
  // runtime).
  Result<void*> allocate(std::uint64_t nbytes) const;
  bool free(void* address) const;

 private:
  int (*export_key_)(void*, std::size_t, char*, std::size_t, std::uint64_t) = nullptr;
  int (*close_key_)(const char*) = nullptr;
  const char* (*recent_error_)() = nullptr;
  int (*get_context_)(void**) = nullptr;
  int (*set_context_)(void*) = nullptr;
  int (*malloc_)(void**, std::size_t, int) = nullptr;
  int (*free_)(void*) = nullptr;
};

}  // namespace onesided::hixl_abi
