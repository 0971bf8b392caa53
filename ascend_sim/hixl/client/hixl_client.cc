// Why: the demo shows what a program written for the vendor's engine meets. This is such a program, as small as one can
// be: one engine registers device memory, a second one connects to it. Its C face is for ctypes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#include "vendor_abi.h"

extern "C" const char* aclGetRecentErrMsg();

namespace {

using hixl::Hixl;

void put(char* to, std::size_t capacity, const std::string& text) {
  if (capacity == 0) return;
  const std::size_t length = std::min(capacity - 1, text.size());
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

}  // namespace

extern "C" {

struct OnesidedRange {
  std::uint64_t address;
  std::uint64_t nbytes;
};

// Registers `count` ranges of the current device's memory with an engine that listens on `address` ("127.0.0.1:<free
// port>"), connects a second engine to it, and ends both. Returns the vendor's status of the first call that failed, or
// 0; its name goes to `call`, the driver's words, if it had any, to `driver` (each cut to its capacity, ended by 0).
// One thread at a time.
ONESIDED_ABI std::uint32_t onesided_hixl_register_and_connect(const char* address, const OnesidedRange* ranges,
                                                              std::size_t count, char* call, std::size_t call_capacity,
                                                              char* driver, std::size_t driver_capacity) {
  put(call, call_capacity, "");
  put(driver, driver_capacity, "");
  const auto failed = [&](const char* name, std::uint32_t status) {
    put(call, call_capacity, name);
    const char* words = aclGetRecentErrMsg();
    put(driver, driver_capacity, words == nullptr ? "" : words);
    return status;
  };
  Hixl owner;
  Hixl reader;
  if (auto status = owner.Initialize(ge::AscendString(address), {})) return failed("Initialize", status);
  if (auto status = reader.Initialize(ge::AscendString("127.0.0.1"), {})) return failed("Initialize", status);
  for (std::size_t i = 0; i < count; ++i) {
    hixl::MemDesc memory;
    memory.addr = ranges[i].address;
    memory.len = ranges[i].nbytes;
    hixl::MemHandle handle = nullptr;
    if (auto status = owner.RegisterMem(memory, hixl::MEM_DEVICE, handle)) return failed("RegisterMem", status);
  }
  if (auto status = reader.Connect(ge::AscendString(address), 5000)) return failed("Connect", status);
  reader.Finalize();
  owner.Finalize();
  return 0;
}

}  // extern "C"
