// The public face: one-sided transfers of registered memory between engines. What each rule means and why is
// docs/threading.md and docs/security.md; the life of a tensor through it is ARCHITECTURE.md.
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

// What an engine is built from; node/open_engine.h has the usual choice. A value that moves.
struct EngineParts {
  using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(const EngineOptions&, RegionAccess&)>;
  MemoryDevices devices;
  std::unique_ptr<CopyLink> self_link;
  std::vector<std::pair<std::string, MakeTransport>> transports;  // by name, best first
};

// One engine: a listener, registered memory, and connections. Thread-safe: every call from any thread. In a forked
// child every call answers CLOSED at once. `timeout_ms`: nothing means no limit; 0 and below is PARAM_INVALID.
class Engine {
 public:
  static constexpr std::int64_t kDefaultTimeoutMs = 1000;
  using TimeoutMs = std::optional<std::int64_t>;

  // Listens on `local_engine` ("127.0.0.1:0", "ip", "[::1]:0", "host:port") and nowhere else. ADDR_IN_USE,
  // PARAM_INVALID.
  static Result<std::unique_ptr<Engine>> create(std::string_view local_engine, const EngineOptions& options,
                                                EngineParts parts);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The address peers connect to, with the port the kernel chose; connect() takes it unchanged.
  const std::string& id() const;

  // Peers may READ and WRITE [address, address + nbytes) until it is deregistered; at once, also peers that connected
  // before. The memory stays the caller's and must stay mapped. The same range again: the same handle, counted. Any
  // other overlap of one kind: PARAM_INVALID. MISALIGNED: Ascend device memory off its 2 MiB boundaries.
  Result<MemHandle> register_mem(std::uint64_t address, std::uint64_t nbytes, MemType type);
  // Refuses the region to everybody, waits until nothing moves in or out of it, forgets it. NOT_FOUND: no such handle.
  // BUSY: somebody alive still uses it after timeout_ms; it stays refused, call again to wait on.
  Result<void> deregister_mem(const MemHandle& handle, TimeoutMs timeout_ms = kDefaultTimeoutMs);

  // ALREADY_CONNECTED, TIMEOUT, NOT_CONNECTED (nobody listens), AUTH_FAILED, UNSUPPORTED, PARAM_INVALID, NOT_FOUND.
  Result<void> connect(std::string_view remote_id, TimeoutMs timeout_ms = kDefaultTimeoutMs);
  // Ends transfers under way with CANCELLED; returns when nothing moves. NOT_CONNECTED.
  Result<void> disconnect(std::string_view remote_id);
  // In order for one remote, side by side for several. RESOURCE_EXHAUSTED.
  Result<void> connect_async(std::string_view remote_id, TimeoutMs timeout_ms = kDefaultTimeoutMs);
  Result<void> disconnect_async(std::string_view remote_id);
  // Of the latest such call. NOT_FOUND: there was none.
  Result<ConnectQueue::Outcome> async_connect_outcome(std::string_view remote_id);

  // Asked by a waiting call a few times a second, on the caller's thread: true ends the wait.
  using GiveUp = std::function<bool()>;
  // Moves all items and returns; on an error nothing moves any more. Errors at submission as transfer_async, else the
  // transfer's cause; CANCELLED: `give_up`, which may be empty, wanted it.
  Result<void> transfer_sync(std::string_view remote_id, Op op, const TransferList& list,
                             TimeoutMs timeout_ms = kDefaultTimeoutMs, const GiveUp& give_up = nullptr);
  // Copies the list. Errors at submission, nothing has moved then: NOT_CONNECTED, PEER_LOST, PARAM_INVALID (names the
  // item), UNSUPPORTED; TIMEOUT while waiting for one of max_outstanding places. STALE items give a transfer that has
  // FAILED.
  Result<std::shared_ptr<Transfer>> transfer_async(std::string_view remote_id, Op op, const TransferList& list,
                                                   TimeoutMs timeout_ms = std::nullopt);

  // Bytes that name these ranges, their registrations and this engine's instance. At most 40 bytes a range.
  Result<std::vector<std::uint8_t>> describe(std::span<const std::pair<std::uint64_t, std::uint64_t>> ranges);
  Result<RemoteRegions> import_desc(std::span<const std::uint8_t> blob);

  // Ranges that are checked and bound once, for transfer(). (address, bytes) each. PARAM_INVALID: a range lies in no
  // single registered region. They keep nothing registered.
  Result<std::shared_ptr<const PreparedList>> prepare_local(std::span<const PreparedList::Address> ranges);
  // The same of what the remote has registered now. Connects with auto_connect. NOT_CONNECTED, PEER_LOST.
  Result<std::shared_ptr<const PreparedList>> prepare_remote(std::string_view remote_id,
                                                             std::span<const PreparedList::Address> ranges,
                                                             TimeoutMs timeout_ms = kDefaultTimeoutMs);
  // The same of what the remote has described; asks nobody.
  Result<std::shared_ptr<const PreparedList>> prepare_remote(const RemoteRegions& described,
                                                             std::span<const PreparedList::Address> ranges);
  // As transfer_async(), between ranges of two prepared lists: item i is local range local_indices[i] and remote range
  // remote_indices[i]. PARAM_INVALID: an index that is out of range, lengths that differ, lists of the wrong side or of
  // another engine. A list whose region was deregistered gives a transfer that has FAILED with STALE.
  Result<std::shared_ptr<Transfer>> transfer(Op op, const PreparedList& local, const Indices& local_indices,
                                             const PreparedList& remote, const Indices& remote_indices,
                                             TimeoutMs timeout_ms = std::nullopt);

  // Waits until the peer's engine has it. NOTIFY_FAILED: its queue is full. TIMEOUT, NOT_CONNECTED, PEER_LOST.
  // PARAM_INVALID: above capability("MAX_NOTIFY_BYTES").
  Result<void> send_notify(std::string_view remote_id, std::string_view name, std::string_view message,
                           TimeoutMs timeout_ms = kDefaultTimeoutMs);
  // All that have come, oldest first; does not block.
  Result<std::vector<Notification>> get_notifies();
  // Blocks until get_notifies() has something to give. TIMEOUT; CLOSED, also when the engine closes meanwhile.
  Result<void> wait_notifies(TimeoutMs timeout_ms = std::nullopt);

  // "DYNAMIC_REGISTRATION", "AUTO_CONNECT", "CLIENT_SERVER_COMM", "CANCEL", "PER_ITEM_RESULTS": 1 or 0;
  // "MAX_NOTIFY_BYTES", "MAX_REGIONS", "REGISTRATION_ALIGNMENT". PARAM_INVALID: unknown name.
  Result<std::int64_t> capability(std::string_view name);

  struct Stats {
    std::string id;
    std::size_t regions = 0;
    std::size_t guests = 0;  // peers that are connected to us
    std::size_t outstanding = 0;
    std::size_t workers = 0;
    std::vector<std::pair<std::string, std::string>> transports;  // that are served, and how they are set up
    std::vector<std::pair<std::string, Peer::Stats>> peers;       // that we are connected to
  };
  Result<Stats> stats();

  // Ends everything; returns when nothing moves and nobody can connect any more. Idempotent; also in a forked child.
  void close();

 private:
  struct Core;
  explicit Engine(std::unique_ptr<Core> core);
  Result<void> enter() const;
  // What to tell of a refused plan: CLOSED when close() came meanwhile, which takes all memory away.
  Error refusal(const Error& error) const;
  static Result<Deadline> deadline_of(TimeoutMs timeout_ms);
  std::optional<Error> run_inline(Peer& peer, Op op, const Plan& plan);
  std::shared_ptr<Transfer> start(PeerUse use, Op op, std::vector<TransferItem> items, Plan& plan, Deadline deadline,
                                  bool caller_waits);
  // Starts a plan that nobody waits for here, or says why it was refused.
  Result<std::shared_ptr<Transfer>> launch(PeerUse use, Op op, std::vector<TransferItem> items,
                                           const Result<void>& planned, Plan& plan, Deadline deadline);

  std::unique_ptr<Core> core_;
};

}  // namespace onesided
