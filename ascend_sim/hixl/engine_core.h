// One initialized vendor-style engine: our engine, what is registered with it under the vendor's rules, and what
// is known of each remote since the program connected to it. The rules: vendor_engine.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "async_connects.h"
#include "back_connections.h"
#include "conversations.h"
#include "driver.h"
#include "engine_options.h"
#include "onesided/base/fork_guard.h"
#include "onesided/base/mutex.h"
#include "onesided/engine/engine.h"
#include "registered_memory.h"
#include "request_table.h"
#include "staging.h"
#include "vendor_engine.h"

namespace onesided::hixl_abi {

// Internally synchronized. Destroyed after close().
class EngineCore {
 public:
  static Result<std::shared_ptr<EngineCore>> create(const std::string& local_engine,
                                                    const std::map<std::string, std::string>& options);
  ~EngineCore();

  Result<MemoryTable::Handle> register_mem(const Segment& segment);
  Result<void> deregister_mem(MemoryTable::Handle handle);
  Result<void> connect(const std::string& remote, std::int32_t timeout_ms);
  Result<void> disconnect(const std::string& remote);
  AsyncConnects& async_connects() { return *async_connects_; }
  Result<void> transfer_sync(const std::string& remote, Direction direction, std::span<const Item> items,
                             std::int32_t timeout_ms);
  Result<std::uint64_t> transfer_async(const std::string& remote, Direction direction, std::span<const Item> items);
  Result<Progress> transfer_status(std::uint64_t request);
  Result<void> send_notify(const std::string& remote, const Notification& notification, std::int32_t timeout_ms);
  std::vector<Notification> get_notifies() { return conversations_->take_notifications(); }

  // Ends everything and waits for it. Idempotent.
  void close();
  // False in a forked child: its threads are not there, so it must not be closed or destroyed.
  bool same_process() const { return process_.same_process(); }

 private:
  // What a remote had registered when the program connected. A value.
  struct View {
    SegmentSet segments;
    bool staging = false;
  };
  struct Request {
    std::string remote;
    std::shared_ptr<Transfer> transfer;
  };

  EngineCore(EngineOptions options, Driver driver, std::unique_ptr<Engine> engine);
  // One thread at a time for one remote; the others wait and then find it connected.
  Result<void> connect_until(const std::string& remote, Deadline deadline);
  Result<void> connect_alone(const std::string& remote, Deadline deadline);
  Result<std::shared_ptr<const View>> hello(const std::string& remote, Deadline deadline);
  Result<std::shared_ptr<const View>> view_of(const std::string& remote, Deadline deadline);
  Result<SplitItems> split(const std::string& remote, std::span<const Item> items, Deadline deadline);
  void note_lost(const std::string& remote, const Error& error);
  Control answer(const Control& question);

  const ForkGuard process_;
  const EngineOptions options_;
  const Driver driver_;
  void* const context_;  // of the thread that initialized; null without a runtime
  const std::unique_ptr<Engine> engine_;
  RegisteredMemory memory_;
  BackConnections connections_;
  // Separate, so that two engines that stage towards each other cannot wait for each other's last buffer.
  StagingBuffers asking_;
  StagingBuffers answering_;
  RequestTable<Request> requests_;
  Mutex mutex_;
  CondVar connected_;
  std::set<std::string> connecting_ ONESIDED_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<const View>> views_ ONESIDED_GUARDED_BY(mutex_);
  std::unique_ptr<Conversations> conversations_;
  std::unique_ptr<AsyncConnects> async_connects_;
};

}  // namespace onesided::hixl_abi
