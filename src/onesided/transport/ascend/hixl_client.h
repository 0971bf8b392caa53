// A wrapper of one hixl::Hixl object: it returns Result instead of numbers, includes the runtime's message in every
// error, and sets the device context that HIXL requires on each calling thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/device/device.h"
#include "onesided/transport/ascend/hixl_library.h"

namespace onesided::ascend {

// An initialized vendor engine. As thread-safe as the vendor's class: calls are passed on unchanged. Every call runs in
// the device context that was current in create() and then restores the thread's own context.
//
// Errors carry the vendor's code if it is a known one (otherwise FAILED, with the number) and the text "<call>: HIXL
// answered <code>: <aclGetRecentErrMsg>".
class HixlClient {
 public:
  // `local_engine` is "ip:port" (listens) or "ip".
  static Result<std::unique_ptr<HixlClient>> create(std::shared_ptr<const HixlLibrary> library,
                                                    const std::string& local_engine,
                                                    const std::map<std::string, std::string>& options);
  // Finalizes.
  ~HixlClient();
  HixlClient(const HixlClient&) = delete;
  HixlClient& operator=(const HixlClient&) = delete;

  // Success does not mean that the memory is usable: HIXL checks it when it connects.
  Result<void*> register_mem(std::uint64_t address, std::uint64_t nbytes, MemType type);
  Result<void> deregister_mem(void* handle);
  // HIXL returns FAILED for memory that the driver refuses (MISALIGNED in this project), among many other causes.
  Result<void> connect(const std::string& remote, std::int32_t timeout_ms);
  Result<void> disconnect(const std::string& remote, std::int32_t timeout_ms);
  Result<void> transfer_sync(const std::string& remote, VendorOp op, const std::vector<VendorItem>& items,
                             std::int32_t timeout_ms);
  Result<void*> transfer_async(const std::string& remote, VendorOp op, const std::vector<VendorItem>& items);
  // After a status other than kWaiting the request is freed: polling it again is PARAM_INVALID. An unknown value is
  // reported as kFailed.
  Result<VendorTransferStatus> poll(void* request);

  const std::string& local_engine() const { return local_engine_; }

 private:
  HixlClient(std::shared_ptr<const HixlLibrary> library, std::string local_engine);
  // Calls `call(functions)` in the client's context; returns its code.
  template <typename Call>
  std::uint32_t run(Call&& call);
  Error failure(const char* name, const std::string& detail, std::uint32_t code) const;

  const std::shared_ptr<const HixlLibrary> library_;
  const std::string local_engine_;
  void* context_ = nullptr;                            // set by create(), then constant; null without a runtime
  alignas(8) unsigned char object_[kHixlBytes] = {0};  // the vendor's
};

}  // namespace onesided::ascend
