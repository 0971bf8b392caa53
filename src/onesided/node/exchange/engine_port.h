// The part of an engine that publishing and fetching objects use. Tests implement this interface with an engine that
// fails at chosen points; engine_port.cc has the real one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onesided/base/clock.h"
#include "onesided/base/result.h"
#include "onesided/device/device.h"

namespace onesided {

// Bytes in this process. A value.
struct MemRange {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  MemType type = MemType::kHost;

  std::uint64_t end() const { return address + nbytes; }
  friend bool operator==(const MemRange&, const MemRange&) = default;
};

// One item of a READ: bytes [offset, offset + nbytes) of the `item`-th range that the owner described.
struct ReadItem {
  std::uint64_t local = 0;
  std::uint32_t item = 0;
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
  friend bool operator==(const ReadItem&, const ReadItem&) = default;
};

// A READ in progress. Thread-safe. The destructor cancels it if it is still running.
class Reading {
 public:
  virtual ~Reading() = default;
  // Blocks until no byte can move and returns the result; std::nullopt if the deadline passed first (the READ
  // continues).
  virtual std::optional<Result<void>> wait(Deadline deadline) = 0;
  // Blocks until no byte can move. No effect if it has ended.
  virtual void cancel() = 0;
};

// Thread-safe. Must outlive everything made from it.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  // The handle is never 0. Errors as Engine::register_mem.
  virtual Result<std::uint64_t> register_range(const MemRange& range) = 0;
  // Waits for transfers that still use the region, at most until the deadline (BUSY: still registered). Success if the
  // engine is closed, because it has removed the region already.
  virtual Result<void> deregister(std::uint64_t handle, Deadline deadline) = 0;
  // True if the range lies in one registered region, no matter which code registered it.
  virtual bool covers(const MemRange& range) = 0;
  // What a peer needs to read these ranges. NOT_FOUND or PARAM_INVALID: one of them is not registered.
  virtual Result<std::string> describe(std::span<const MemRange> ranges) = 0;
  // Incremented whenever this engine's set of regions changes.
  virtual std::uint64_t regions_version() = 0;

  // Success if the peer is connected already, or is this engine itself.
  virtual Result<void> connect(const std::string& remote, Deadline deadline) = 0;
  virtual void disconnect(const std::string& remote) = 0;
  // True if regions registered after connect() can be read without reconnecting.
  virtual bool sees_new_regions() = 0;
  // `desc` is from describe() of the remote engine and is checked here. PEER_LOST, NOT_CONNECTED: no byte has moved,
  // the connection has broken. STALE: no byte has moved; see connected_to_maker().
  virtual Result<std::unique_ptr<Reading>> read(const std::string& remote, const std::string& desc,
                                                std::vector<ReadItem> items,
                                                std::optional<std::int64_t> timeout_ms) = 0;
  // True if the connection is to the engine instance that made the description; then STALE memory was deregistered
  // there. Otherwise the description or the connection belongs to an earlier instance of the peer.
  virtual bool connected_to_maker(const std::string& remote, const std::string& desc) = 0;
};

class Engine;
// The port to a real engine.
std::shared_ptr<EnginePort> make_engine_port(std::shared_ptr<Engine> engine);

}  // namespace onesided
