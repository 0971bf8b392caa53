// Shared by the tests of the tcp transport: one initiator and one owner in one process, without sessions and
// registries.
#pragma once

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "onesided/base/mutex.h"
#include "onesided/transport/tcp/batch_run.h"
#include "onesided/transport/tcp/factory.h"
#include "onesided/transport/tcp/socket_io.h"
#include "onesided/wire/data.h"

namespace onesided::tcp::testing {

inline constexpr std::int64_t kTestMs = 20'000;

// Device memory that only the device's copies can access: its addresses are tags, its bytes lie elsewhere.
class FarDevice : public Device {
 public:
  static constexpr std::uint64_t kBase = 0x10000;
  explicit FarDevice(std::size_t nbytes) : bytes(nbytes) {}
  std::string_view name() const override { return "far"; }
  MemType mem_type() const override { return MemType::kDevice; }
  std::uint64_t page_bytes() const override { return 4096; }
  std::uint64_t registration_alignment() const override { return 1; }
  bool host_accessible() const override { return false; }
  Result<void*> allocate(std::uint64_t, std::uint64_t) override { return unsupported(); }
  Result<void> free(void*, std::uint64_t) override { return unsupported(); }
  Result<MemoryInfo> memory_info() override { return unsupported(); }
  Result<Event> record_event(Stream) override { return unsupported(); }
  Result<bool> event_done(Event) override { return unsupported(); }
  Result<void> wait_event(Event) override { return unsupported(); }
  void release_event(Event) override {}
  Result<void> synchronize() override { return {}; }
  Result<void> copy_to_host(void* host, const void* device, std::uint64_t nbytes) override {
    if (broken) return Error(Status::kFailed, "broken");
    std::memcpy(host, bytes.data() + (reinterpret_cast<std::uint64_t>(device) - kBase), nbytes);
    return {};
  }
  Result<void> copy_from_host(void* device, const void* host, std::uint64_t nbytes) override {
    if (broken) return Error(Status::kFailed, "broken");
    std::memcpy(bytes.data() + (reinterpret_cast<std::uint64_t>(device) - kBase), host, nbytes);
    return {};
  }
  Result<ExportedMemory> export_memory(const void*) override { return unsupported(); }
  Result<PointerInfo> inspect(const void*) override { return unsupported(); }

  std::vector<std::uint8_t> bytes;
  std::atomic<bool> broken{false};

 private:
  static Error unsupported() { return Error(Status::kUnsupported, "far device"); }
};

// The owner's registered memory.
class FakeMemory : public RegionAccess {
 public:
  struct Region {
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
    Device* device = nullptr;
    UseCount uses;
  };
  RegionKey add(void* address, std::uint64_t nbytes, Device* device = nullptr) {
    MutexLock lock(mutex_);
    const RegionKey key{next_, 1};
    auto& region = regions_[next_++];
    region.address = reinterpret_cast<std::uint64_t>(address);
    region.nbytes = nbytes;
    region.device = device;
    return key;
  }
  // Waits until the region is unused, as deregister_mem does.
  bool drop(RegionKey key) {
    Region* region = nullptr;
    {
      MutexLock lock(mutex_);
      region = &regions_.at(key.index);
      dropped_.insert(key.index);
    }
    return region->uses.wait_idle(Deadline::after_ms(kTestMs));
  }
  Result<RegionHold> acquire(RegionKey key, std::uint64_t address, std::uint64_t nbytes, Op) override {
    if (on_acquire) on_acquire();
    MutexLock lock(mutex_);
    const auto found = regions_.find(key.index);
    if (found == regions_.end() || dropped_.count(key.index) != 0 || key.generation != 1)
      return Error(Status::kStale, "gone");
    auto& region = found->second;
    if (!range_within(address, nbytes, region.address, region.nbytes))
      return Error(Status::kParamInvalid, "out of range");
    region.uses.enter();
    return RegionHold(&region.uses, region.device);
  }
  std::function<void()> on_acquire;

 private:
  Mutex mutex_;
  std::uint32_t next_ = 0;
  std::map<std::uint32_t, Region> regions_;
  std::set<std::uint32_t> dropped_;
};

inline std::pair<Fd, Fd> tcp_pair() {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  Fd near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(near.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  Fd far(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return {std::move(near), std::move(far)};
}

// Replaces the session to the owner.
class FakeChannel : public PeerChannel {
 public:
  explicit FakeChannel(std::function<void(Fd)> serve) : serve_(std::move(serve)) {
    info_.engine_id = "owner:1";
    info_.transports = {"tcp"};
  }
  const PeerInfo& peer() const override { return info_; }
  bool alive() const override { return alive_; }
  Result<Fd> open_stream(std::string_view transport, Deadline) override {
    EXPECT_EQ(transport, "tcp");
    if (!alive_ || refuse) return Error(Status::kPeerLost, "the test refuses data streams");
    auto [near, far] = tcp_pair();
    ++opened;
    serve_(std::move(far));
    return std::move(near);
  }
  void lose() { alive_ = false; }
  std::atomic<bool> refuse{false};
  std::atomic<int> opened{0};

 private:
  PeerInfo info_;
  std::function<void(Fd)> serve_;
  std::atomic<bool> alive_{true};
};

class RecordingSink : public BatchSink {
 public:
  explicit RecordingSink(std::size_t moves) : moved_(moves) {}
  void moved(std::size_t move, std::uint64_t nbytes) override {
    EXPECT_FALSE(finished_);
    moved_[move] += nbytes;
  }
  void failed(std::size_t move, Error error) override {
    MutexLock lock(mutex_);
    EXPECT_FALSE(finished_);
    EXPECT_TRUE(failed_.emplace(move, error).second) << "move " << move << " failed twice";
  }
  void finished(std::optional<Error> rest) override {
    MutexLock lock(mutex_);
    EXPECT_FALSE(finished_) << "finished twice";
    rest_ = rest;
    finished_ = true;
    changed_.notify_all();
  }
  bool wait(std::int64_t ms = kTestMs) {
    const auto deadline = Deadline::after_ms(ms);
    MutexLock lock(mutex_);
    while (!finished_ && !deadline.passed()) changed_.wait(lock, deadline);
    return finished_;
  }
  std::optional<Status> rest() {
    MutexLock lock(mutex_);
    return rest_ ? std::optional(rest_->status()) : std::nullopt;
  }

  std::vector<std::atomic<std::uint64_t>> moved_;
  std::map<std::size_t, Error> failed_;

 private:
  Mutex mutex_;
  CondVar changed_;
  std::atomic<bool> finished_{false};
  std::optional<Error> rest_;
};

inline std::vector<std::uint8_t> pattern(std::size_t nbytes, std::uint64_t seed) {
  std::vector<std::uint8_t> bytes(nbytes);
  std::uint64_t value = seed * 2654435761u + 1;
  for (auto& byte : bytes)
    byte = static_cast<std::uint8_t>((value = value * 6364136223846793005u + 1442695040888963407u) >> 56);
  return bytes;
}

// testing::Each takes seconds for megabytes.
inline bool all_are(std::span<const std::uint8_t> bytes, std::uint8_t value) {
  return std::ranges::all_of(bytes, [value](std::uint8_t byte) { return byte == value; });
}

// One initiator, one owner, in one process.
struct TcpTransportTest : ::testing::Test {
  void SetUp() override { build({}); }
  void build(const TcpOptions& options) {
    link.reset();
    owner = std::move(*make_tcp_transport(options, memory));
    initiator = std::move(*make_tcp_transport(options, initiators_memory));
    channel = std::make_shared<FakeChannel>([this](Fd far) { serve(std::move(far)); });
    owners_channel = std::make_shared<FakeChannel>([](Fd) {});
    auto made = initiator->connect(channel, channel->peer(), Deadline::after_ms(kTestMs));
    ASSERT_TRUE(made.ok());
    link = std::get<std::unique_ptr<QueueLink>>(std::move(*made));
  }
  virtual void serve(Fd far) {
    MutexLock lock(owner_mutex);
    owner->serve(std::move(far), owners_channel);
  }
  // Connects new streams to another owner; returns the previous one.
  std::unique_ptr<Transport> replace_owner() {
    auto fresh = std::move(*make_tcp_transport({}, memory));
    MutexLock lock(owner_mutex);
    return std::exchange(owner, std::move(fresh));
  }
  void TearDown() override {
    link.reset();
    initiator.reset();
    owner.reset();
  }

  std::shared_ptr<RecordingSink> post(Op op, std::vector<Move> moves,
                                      std::optional<std::int64_t> timeout_ms = std::nullopt) {
    auto sink = std::make_shared<RecordingSink>(moves.size());
    auto batch = std::make_shared<Batch>();
    batch->op = op;
    batch->moves = std::move(moves);
    batch->deadline = Deadline::after_ms(timeout_ms);
    batch->sink = sink;
    last = batch;
    link->post(batch);
    return sink;
  }
  static Move move(void* local, void* remote, std::uint64_t nbytes, RegionKey key) {
    Move out;
    out.local = reinterpret_cast<std::uint64_t>(local);
    out.remote = reinterpret_cast<std::uint64_t>(remote);
    out.nbytes = nbytes;
    out.region = key;
    return out;
  }

  FakeMemory memory, initiators_memory;
  Mutex owner_mutex;
  std::unique_ptr<Transport> owner, initiator;
  std::shared_ptr<FakeChannel> channel, owners_channel;
  std::unique_ptr<QueueLink> link;
  std::shared_ptr<const Batch> last;
};

}  // namespace onesided::tcp::testing
