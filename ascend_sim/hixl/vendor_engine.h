// Adxl::AdxlEngine and hixl::Hixl are two names for one behaviour. It is written down and kept here: what the
// vendor's public documentation promises its callers, over our engine.
//
// The behaviour (codes are HIXL's; every failure also logs one line on stderr that says what, where and what to do):
//   Initialize   "ip:port" listens, "ip" or a port <= 0 does not; IPv6 in brackets. Unknown or wrong option:
//                PARAM_INVALID. Twice: PARAM_INVALID. Every other call before it, or after Finalize: FAILED.
//   RegisterMem  Null, length 0, a wrapping end, or an overlap of the same type: PARAM_INVALID; the same range again:
//                the same handle, counted; neighbours are separate. Misaligned device memory is ACCEPTED.
//   Deregister   Counts down; an unknown handle: SUCCESS.
//   Connect      Asks the driver to export all registered device memory of both sides: what it refuses makes Connect
//                answer FAILED (503900), the driver's words in aclGetRecentErrMsg. Second time: ALREADY_CONNECTED.
// No listener: FAILED at once. Memory that the remote registers later cannot be reached until the
//                next Connect (with AutoConnect the engine does that by itself).
//   Transfer     Not connected: NOT_CONNECTED (with AutoConnect: connects). Empty list, null, length 0, timeout <= 0,
//                or a range that is not registered: PARAM_INVALID; with a BufferPool on both sides unregistered host
//                memory is staged (sync transfers only). An item may run across neighbouring registrations.
//   Status       WAITING until the end; the end is told once, then the request is unknown: PARAM_INVALID.
//   Notify       Name and message of at most 1024 bytes each; GetNotifies drains without blocking.
//   Finalize     Idempotent; ends everything, disconnects, forgets all memory. The destructor does the same.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "async_connects.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/engine/notify_queue.h"
#include "span_split.h"

namespace onesided::hixl_abi {

class EngineCore;

enum class Direction { kRead, kWrite };
// In the order of the vendor's TransferStatus.
enum class Progress { kWaiting, kCompleted, kTimeout, kFailed };

// One vendor-style engine from Initialize to Finalize, and again. Internally synchronized: a call that overlaps with
// finalize() ends as if it had come before or after it.
class VendorEngine {
 public:
  VendorEngine();
  ~VendorEngine();

  Status initialize(const std::string& local_engine, const std::map<std::string, std::string>& options);
  void finalize();
  Status register_mem(const Segment& segment, std::uint64_t& handle);
  Status deregister_mem(std::uint64_t handle);
  Status connect(const std::string& remote, std::int32_t timeout_ms);
  Status disconnect(const std::string& remote, std::int32_t timeout_ms);
  Status connect_async(AsyncConnects::Job job, const std::string& remote, std::int32_t timeout_ms);
  Status async_connect_state(const std::string& remote, ConnectState& state);
  Status async_connect_states(std::map<std::string, ConnectState>& states);
  Status transfer_sync(const std::string& remote, Direction direction, std::span<const Item> items,
                       std::int32_t timeout_ms);
  Status transfer_async(const std::string& remote, Direction direction, std::span<const Item> items,
                        std::uint64_t& request);
  Status transfer_status(std::uint64_t request, Progress& progress);
  Status send_notify(const std::string& remote, const Notification& notification, std::int32_t timeout_ms);
  Status get_notifies(std::vector<Notification>& notifications);

 private:
  // Null before initialize() and after finalize(). A call keeps what it got alive until it returns.
  std::shared_ptr<EngineCore> core() const;
  template <typename Call>
  Status with_core(const char* call, Call&& body);

  mutable Mutex mutex_;
  std::shared_ptr<EngineCore> core_ ONESIDED_GUARDED_BY(mutex_);
};

// What the calling thread's last failing call had to say; "" when none failed. Valid until its next failure. Ours: the
// vendor has the runtime's aclGetRecentErrMsg only, which knows nothing of the other side.
const char* last_error();

// The static calls of the API: memory fit for registration from outside any engine.
Status malloc_mem(MemType type, std::uint64_t nbytes, void** address);
Status free_mem(void* address);

}  // namespace onesided::hixl_abi
