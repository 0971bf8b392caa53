// The functions of the Ascend runtime that onesided calls, looked up in the library that is already loaded. The
// declarations were written from the public API's documentation: no vendor header is needed to build, and no vendor
// library is linked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "onesided/base/result.h"

namespace onesided::acl {

using Code = int;  // aclError; 0 is success
inline constexpr Code kSuccess = 0;
inline constexpr Code kOutOfMemoryCodes[] = {200000, 207001, 207018};  // storage allocation / runtime memory / HBM
inline constexpr int kMallocHugeOnly = 1;                              // ACL_MEM_MALLOC_HUGE_ONLY
inline constexpr int kHbmMemory = 1;                                   // ACL_HBM_MEM
inline constexpr int kHostToDevice = 1;                                // ACL_MEMCPY_HOST_TO_DEVICE
inline constexpr int kDeviceToHost = 2;                                // ACL_MEMCPY_DEVICE_TO_HOST
inline constexpr std::uint32_t kEventProgress = 2;  // ACL_EVENT_CAPTURE_STREAM_PROGRESS: can be queried
inline constexpr int kEventComplete = 1;            // ACL_EVENT_RECORDED_STATUS_COMPLETE
inline constexpr int kLocationDevice = 1;           // ACL_MEM_LOCATION_TYPE_DEVICE

// aclrtPtrAttributes
struct PointerAttributes {
  std::uint32_t device_id = 0;
  int location = 0;
  std::uint32_t page_bytes = 0;
  std::uint32_t reserved[4] = {};
  std::uint32_t slack[16] = {};  // a newer runtime may have a longer struct
};

// Entry points of one loaded runtime. A value; valid until the process ends. The last block may be null.
struct RuntimeFunctions {
  Code (*get_device_count)(std::uint32_t*) = nullptr;
  Code (*get_device)(std::int32_t*) = nullptr;
  Code (*set_device)(std::int32_t) = nullptr;
  Code (*get_current_context)(void**) = nullptr;
  Code (*set_current_context)(void*) = nullptr;
  Code (*malloc)(void**, std::size_t, int) = nullptr;
  Code (*free)(void*) = nullptr;
  Code (*get_mem_info)(int, std::size_t*, std::size_t*) = nullptr;
  Code (*memcpy)(void*, std::size_t, const void*, std::size_t, int) = nullptr;
  Code (*create_event)(void**, std::uint32_t) = nullptr;
  Code (*destroy_event)(void*) = nullptr;
  Code (*record_event)(void*, void*) = nullptr;
  Code (*query_event_status)(void*, int*) = nullptr;
  Code (*synchronize_event)(void*) = nullptr;
  Code (*synchronize_device)() = nullptr;

  const char* (*get_recent_error)() = nullptr;
  Code (*pointer_get_attributes)(const void*, PointerAttributes*) = nullptr;
  // A function of the simulated runtime only: the file that contains an address. If it is present, host code may access
  // device memory.
  int (*sim_export)(const void*, int* borrowed_fd, std::uint64_t* file_offset, std::uint64_t* base,
                    std::uint64_t* nbytes) = nullptr;
};

// A handle of the loaded libascendcl.so, or null. Never loads it.
void* loaded_runtime();

// NOT_FOUND: none is loaded. UNSUPPORTED: it lacks a function, named in the text.
Result<RuntimeFunctions> look_up_runtime();

// "aclrtMalloc(4096 bytes) failed with 207001: <the runtime's message>"; out of memory is RESOURCE_EXHAUSTED.
Error runtime_error(const RuntimeFunctions& runtime, const std::string& call, Code code);

// Makes a device this thread's current one for a scope, then restores the previous one. A thread that had none keeps
// the device, because the runtime has no call to set none. Confined to one thread.
class CurrentDevice {
 public:
  static Result<CurrentDevice> enter(const RuntimeFunctions& runtime, int device_id);
  CurrentDevice(CurrentDevice&& other) noexcept : runtime_(other.runtime_), restore_(other.restore_) {
    other.restore_ = nullptr;
  }
  CurrentDevice& operator=(CurrentDevice&&) = delete;
  ~CurrentDevice();

 private:
  CurrentDevice(const RuntimeFunctions& runtime, void* restore) : runtime_(&runtime), restore_(restore) {}
  const RuntimeFunctions* runtime_;
  void* restore_;  // context to return to, or null
};

}  // namespace onesided::acl
