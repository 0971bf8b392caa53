// Connect_async and disconnect_async: in order for one remote, side by side for different ones, and a black-holed
// remote delays nobody else.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "onesided/base/result.h"
#include "onesided/engine/transfer.h"

namespace onesided {

// Runs one remote's operations on a thread that lives as long as there are any. Internally synchronized.
class ConnectQueue {
 public:
  static constexpr std::size_t kMaxQueued = 1024;  // of one remote
  static constexpr std::size_t kMaxRemotes = 256;  // with operations under way

  using Operation = std::function<Result<void>()>;
  struct Outcome {
    TransferStatus status = TransferStatus::kWaiting;
    std::optional<Error> error;
  };

  ConnectQueue();
  ~ConnectQueue();  // after close()

  // RESOURCE_EXHAUSTED: too many wait already. CLOSED.
  Result<void> add(std::string_view remote_id, Operation operation);
  // Of the latest operation of that remote. NOT_FOUND: there never was one.
  Result<Outcome> outcome(std::string_view remote_id);
  // Refuses new operations and waits for those that are queued: see to it that they end.
  void close();

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state, const std::string& remote_id);
  const std::shared_ptr<State> state_;  // shared with the threads, which are detached
};

}  // namespace onesided
