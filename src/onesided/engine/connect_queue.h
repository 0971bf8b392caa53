// The queue of connect_async and disconnect_async. Operations for one remote run in order; operations for different
// remotes run concurrently, so an unreachable remote does not delay the others.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "onesided/base/result.h"
#include "onesided/engine/transfer.h"

namespace onesided {

// Runs the operations of each remote on one thread, which exists while there are any. Internally synchronized.
class ConnectQueue {
 public:
  static constexpr std::size_t kMaxQueued = 1024;  // of one remote
  static constexpr std::size_t kMaxRemotes = 256;  // with pending operations

  using Operation = std::function<Result<void>()>;
  struct Outcome {
    TransferStatus status = TransferStatus::kWaiting;
    std::optional<Error> error;
  };

  ConnectQueue();
  ~ConnectQueue();  // after close()

  // Errors: RESOURCE_EXHAUSTED if too many operations are queued; CLOSED.
  Result<void> add(std::string_view remote_id, Operation operation);
  // The outcome of the remote's latest operation. NOT_FOUND if there was none.
  Result<Outcome> outcome(std::string_view remote_id);
  // Refuses new operations and blocks until all queued ones have ended. The caller makes sure that they end.
  void close();

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state, const std::string& remote_id);
  const std::shared_ptr<State> state_;  // shared with the threads, which are detached
};

}  // namespace onesided
