// Publishing objects and fetching them needs a handful of things of an engine. Behind this small interface the
// bookkeeping is tested against an engine that fails where a test says so; engine_port.cc has the real one.
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

// A READ under way. Thread-safe. Destroying one that still runs cancels it first.
class Reading {
 public:
  virtual ~Reading() = default;
  // Blocks until nothing moves any more and says how it ended; nothing when the deadline came first (it goes on).
  virtual std::optional<Result<void>> wait(Deadline deadline) = 0;
  // Returns when nothing moves any more. No effect on one that has ended.
  virtual void cancel() = 0;
};

// Thread-safe. Outlives everything made from it.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  // The handle is never 0. Errors as Engine::register_mem.
  virtual Result<std::uint64_t> register_range(const MemRange& range) = 0;
  // Waits for whoever still moves bytes of it, at most until the deadline (BUSY: still registered). A closed engine has
  // forgotten the region already: success.
  virtual Result<void> deregister(std::uint64_t handle, Deadline deadline) = 0;
  // Whether the range lies in one registered region, whoever registered it.
  virtual bool covers(const MemRange& range) = 0;
  // What a peer needs to read these ranges. NOT_FOUND or PARAM_INVALID: one of them is not registered.
  virtual Result<std::string> describe(std::span<const MemRange> ranges) = 0;
  // Grows whenever this engine's set of regions changes.
  virtual std::uint64_t regions_version() = 0;

  // A peer that is connected already is success; so is this engine itself.
  virtual Result<void> connect(const std::string& remote, Deadline deadline) = 0;
  virtual void disconnect(const std::string& remote) = 0;
  // Regions registered after connect() can be read without connecting anew.
  virtual bool sees_new_regions() = 0;
  // `desc` came from describe() of the remote engine and is checked here. PEER_LOST, NOT_CONNECTED: nothing has moved,
  // the connection broke since it was made. STALE: nothing has moved, see connected_to_maker().
  virtual Result<std::unique_ptr<Reading>> read(const std::string& remote, const std::string& desc,
                                                std::vector<ReadItem> items,
                                                std::optional<std::int64_t> timeout_ms) = 0;
  // Whether the connection is to the very engine that made the description. If so, what is STALE was deregistered
  // there; if not, the description or the connection is of an earlier life of the peer.
  virtual bool connected_to_maker(const std::string& remote, const std::string& desc) = 0;
};

class Engine;
// The real one.
std::shared_ptr<EnginePort> make_engine_port(std::shared_ptr<Engine> engine);

}  // namespace onesided
