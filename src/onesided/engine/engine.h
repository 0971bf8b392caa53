// Public interface: one-sided transfers of registered memory between engines. docs/threading.md and docs/security.md
// explain the rules; ARCHITECTURE.md follows one tensor through a transfer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onesided/base/result.h"
#include "onesided/device/device.h"
#include "onesided/engine/connect_queue.h"
#include "onesided/engine/notify_queue.h"
#include "onesided/engine/options.h"
#include "onesided/engine/peer.h"
#include "onesided/engine/plan.h"
#include "onesided/engine/prepared.h"
#include "onesided/engine/registry.h"
#include "onesided/engine/remote_regions.h"
#include "onesided/engine/transfer.h"

namespace onesided {

// The parts an engine is built from; node/open_engine.h makes the usual choice. A movable value.
struct EngineParts {
  using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(const EngineOptions&, RegionAccess&)>;
  MemoryDevices devices;
  std::unique_ptr<CopyLink> self_link;
  std::vector<std::pair<std::string, MakeTransport>> transports;  // by name, best first
};

// One engine: a listener, registered memory, and connections. Thread-safe: any thread may call any function. In a
// forked child every call returns CLOSED immediately. `timeout_ms` in milliseconds: std::nullopt means no limit; a
// value of 0 or less is PARAM_INVALID.
class Engine {
 public:
  static constexpr std::int64_t kDefaultTimeoutMs = 1000;
  using TimeoutMs = std::optional<std::int64_t>;

  // Listens on `local_engine` ("127.0.0.1:0", "ip", "[::1]:0", "host:port") and on no other address. Errors:
  // ADDR_IN_USE, PARAM_INVALID.
  static Result<std::unique_ptr<Engine>> create(std::string_view local_engine, const EngineOptions& options,
                                                EngineParts parts);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The address that peers connect to, with the actual port; a peer passes it to connect() unchanged.
  const std::string& id() const;

  // Allows peers, including those already connected, to READ and WRITE [address, address + nbytes) until it is
  // deregistered. The caller keeps ownership and keeps the memory mapped. If the same range is registered again, the
  // same handle is returned and counted. Errors: PARAM_INVALID for any other overlap with a region of the same type;
  // MISALIGNED for Ascend device memory that does not start and end on 2 MiB boundaries.
  Result<MemHandle> register_mem(std::uint64_t address, std::uint64_t nbytes, MemType type);
  // Refuses new transfers of the region, blocks until no byte can move in or out of it, then removes it. NOT_FOUND: no
  // such handle. BUSY: the region is still in use after timeout_ms; it accepts no new transfers, and another call waits
  // again.
  Result<void> deregister_mem(const MemHandle& handle, TimeoutMs timeout_ms = kDefaultTimeoutMs);

  // Blocks until connected. Errors: ALREADY_CONNECTED, TIMEOUT, NOT_CONNECTED (no engine listens there), AUTH_FAILED,
  // UNSUPPORTED, PARAM_INVALID, NOT_FOUND.
  Result<void> connect(std::string_view remote_id, TimeoutMs timeout_ms = kDefaultTimeoutMs);
  // Ends this peer's unfinished transfers with CANCELLED and blocks until no byte can move. Error: NOT_CONNECTED.
  Result<void> disconnect(std::string_view remote_id);
  // Operations for one remote run in order, those for different remotes concurrently. Error: RESOURCE_EXHAUSTED.
  Result<void> connect_async(std::string_view remote_id, TimeoutMs timeout_ms = kDefaultTimeoutMs);
  Result<void> disconnect_async(std::string_view remote_id);
  // The outcome of the latest such call for this remote. NOT_FOUND if there was none.
  Result<ConnectQueue::Outcome> async_connect_outcome(std::string_view remote_id);

  // A blocked call invokes it a few times a second on the caller's thread; if it returns true, the call ends.
  using GiveUp = std::function<bool()>;
  // Blocks until all items have moved. After an error no byte of the transfer can move. Errors at submission as
  // transfer_async(), otherwise the cause of the transfer's failure. CANCELLED: `give_up` (may be empty) returned true.
  Result<void> transfer_sync(std::string_view remote_id, Op op, const TransferList& list,
                             TimeoutMs timeout_ms = kDefaultTimeoutMs, const GiveUp& give_up = nullptr);
  // Starts a transfer and returns it; copies the list. Errors at submission, before any byte has moved: NOT_CONNECTED,
  // PEER_LOST, PARAM_INVALID (names the item), UNSUPPORTED, and TIMEOUT if max_outstanding transfers are unfinished
  // until the deadline. If an item is STALE, the returned transfer is FAILED.
  Result<std::shared_ptr<Transfer>> transfer_async(std::string_view remote_id, Op op, const TransferList& list,
                                                   TimeoutMs timeout_ms = std::nullopt);

  // Encodes these ranges, their registrations and this engine's instance, for the peer's import_desc(). At most 40
  // bytes per range.
  Result<std::vector<std::uint8_t>> describe(std::span<const std::pair<std::uint64_t, std::uint64_t>> ranges);
  Result<RemoteRegions> import_desc(std::span<const std::uint8_t> blob);

  // Ranges that are checked and bound once, for transfer(). (address, bytes) each. PARAM_INVALID: a range lies in no
  // single registered region. They keep nothing registered.
  Result<std::shared_ptr<const PreparedList>> prepare_local(std::span<const PreparedList::Address> ranges);
  // The same for ranges that the remote has registered now. Connects with auto_connect. Errors: NOT_CONNECTED,
  // PEER_LOST.
  Result<std::shared_ptr<const PreparedList>> prepare_remote(std::string_view remote_id,
                                                             std::span<const PreparedList::Address> ranges,
                                                             TimeoutMs timeout_ms = kDefaultTimeoutMs);
  // The same for ranges that the remote has described; sends no message.
  Result<std::shared_ptr<const PreparedList>> prepare_remote(const RemoteRegions& described,
                                                             std::span<const PreparedList::Address> ranges);
  // As transfer_async(), between ranges of two prepared lists: item i is local range local_indices[i] and remote range
  // remote_indices[i]. PARAM_INVALID: an index that is out of range, lengths that differ, lists of the wrong side or of
  // another engine. A list whose region was deregistered gives a transfer that has FAILED with STALE.
  Result<std::shared_ptr<Transfer>> transfer(Op op, const PreparedList& local, const Indices& local_indices,
                                             const PreparedList& remote, const Indices& remote_indices,
                                             TimeoutMs timeout_ms = std::nullopt);

  // Blocks until the peer's engine has received the notification. Errors: NOTIFY_FAILED if the peer's queue is full;
  // PARAM_INVALID above capability("MAX_NOTIFY_BYTES"); TIMEOUT, NOT_CONNECTED, PEER_LOST.
  Result<void> send_notify(std::string_view remote_id, std::string_view name, std::string_view message,
                           TimeoutMs timeout_ms = kDefaultTimeoutMs);
  // All received notifications, oldest first. Does not block.
  Result<std::vector<Notification>> get_notifies();
  // Blocks until a notification has been received. Errors: TIMEOUT; CLOSED, also if the engine is closed during the
  // call.
  Result<void> wait_notifies(TimeoutMs timeout_ms = std::nullopt);

  // "DYNAMIC_REGISTRATION", "AUTO_CONNECT", "CLIENT_SERVER_COMM", "CANCEL", "PER_ITEM_RESULTS": 1 or 0.
  // "MAX_NOTIFY_BYTES", "MAX_REGIONS", "REGISTRATION_ALIGNMENT": a number. PARAM_INVALID: unknown name.
  Result<std::int64_t> capability(std::string_view name);

  struct Stats {
    std::string id;
    std::size_t regions = 0;
    std::size_t guests = 0;  // peers that connected to this engine
    std::size_t outstanding = 0;
    std::size_t workers = 0;
    std::vector<std::pair<std::string, std::string>> transports;  // served transports and their settings
    std::vector<std::pair<std::string, Peer::Stats>> peers;       // peers that this engine connected to
  };
  Result<Stats> stats();

  // Ends all transfers and sessions and blocks until no byte can move and no peer can connect. Idempotent; may be
  // called in a forked child.
  void close();

 private:
  struct Core;
  explicit Engine(std::unique_ptr<Core> core);
  Result<void> enter() const;
  // The error to report for a refused plan: CLOSED if close() was called meanwhile, because close() retires all
  // regions.
  Error refusal(const Error& error) const;
  static Result<Deadline> deadline_of(TimeoutMs timeout_ms);
  std::optional<Error> run_inline(Peer& peer, Op op, const Plan& plan);
  std::shared_ptr<Transfer> start(PeerUse use, Op op, std::vector<TransferItem> items, Plan& plan, Deadline deadline,
                                  bool caller_waits);
  // Starts a plan without waiting for it. Error: the reason why the plan was refused.
  Result<std::shared_ptr<Transfer>> launch(PeerUse use, Op op, std::vector<TransferItem> items,
                                           const Result<void>& planned, Plan& plan, Deadline deadline);

  std::unique_ptr<Core> core_;
};

}  // namespace onesided
