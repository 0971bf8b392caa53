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

namespace onesided {
namespace {

constexpr std::int64_t kTestMs = 20'000;

// Device memory that only copies can reach: its addresses are tags, its bytes lie elsewhere.
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
  // Waits for its users, as deregister_mem does.
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

std::pair<Fd, Fd> tcp_pair() {
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

// The session to the owner, without a session.
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
    if (!alive_ || refuse) return Error(Status::kPeerLost, "no more streams");
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

std::vector<std::uint8_t> pattern(std::size_t nbytes, std::uint64_t seed) {
  std::vector<std::uint8_t> bytes(nbytes);
  std::uint64_t value = seed * 2654435761u + 1;
  for (auto& byte : bytes)
    byte = static_cast<std::uint8_t>((value = value * 6364136223846793005u + 1442695040888963407u) >> 56);
  return bytes;
}

// testing::Each takes seconds for megabytes.
bool all_are(std::span<const std::uint8_t> bytes, std::uint8_t value) {
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
  // Streams from now on go to another owner; returns the one before.
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

TEST_F(TcpTransportTest, MovesEverySizeBothWaysByteForByteWithinItsBounds) {
  constexpr std::size_t kGuard = 64;
  for (const std::size_t nbytes : {1ul, 3ul, 511ul, 4096ul, 4097ul, 65535ul, (1ul << 20) + 1, (5ul << 20) + 7}) {
    auto remote = pattern(nbytes + 2 * kGuard, nbytes);
    const auto original = remote;
    std::vector<std::uint8_t> local(nbytes + 2 * kGuard, 0xee);
    const auto key = memory.add(remote.data() + kGuard, nbytes);
    auto sink = post(Op::kRead, {move(local.data() + kGuard, remote.data() + kGuard, nbytes, key)});
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->rest(), std::nullopt);
    EXPECT_EQ(sink->moved_[0], nbytes);
    EXPECT_TRUE(std::equal(local.begin() + kGuard, local.end() - kGuard, remote.begin() + kGuard));
    EXPECT_TRUE(all_are(std::span(local).first(kGuard), 0xee));
    EXPECT_TRUE(all_are(std::span(local).last(kGuard), 0xee));

    auto source = pattern(nbytes, nbytes + 1);
    sink = post(Op::kWrite, {move(source.data(), remote.data() + kGuard, nbytes, key)});
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->moved_[0], nbytes);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), remote.begin() + kGuard));
    EXPECT_TRUE(std::equal(remote.begin(), remote.begin() + kGuard, original.begin()));
    EXPECT_TRUE(std::equal(remote.end() - kGuard, remote.end(), original.end() - kGuard));
  }
}

TEST_F(TcpTransportTest, ManySmallItemsInOneBatch) {
  constexpr std::size_t kItems = 20'000;
  auto remote = pattern(kItems * 48, 5);
  std::vector<std::uint8_t> local(kItems * 48);
  const auto key = memory.add(remote.data(), remote.size());
  std::vector<Move> moves;
  std::vector<std::size_t> order(kItems);
  for (std::size_t i = 0; i < kItems; ++i) order[i] = i;
  std::mt19937 random(9);
  std::ranges::shuffle(order, random);
  for (const auto i : order) moves.push_back(move(local.data() + i * 48, remote.data() + i * 48, 1 + i % 48, key));
  for (const auto op : {Op::kRead, Op::kWrite}) {
    auto sink = post(op, moves);
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->rest(), std::nullopt);
    for (std::size_t k = 0; k < kItems; ++k) {
      ASSERT_EQ(sink->moved_[k], moves[k].nbytes);
      ASSERT_EQ(std::memcmp(local.data() + order[k] * 48, remote.data() + order[k] * 48, moves[k].nbytes), 0);
    }
    const auto other = pattern(kItems * 48, 6);
    std::ranges::copy(other, local.begin());
  }
}

TEST_F(TcpTransportTest, ItemsThatAreRefusedFailAloneAndMoveNothing) {
  auto remote = pattern(4 << 20, 1);
  const auto untouched = remote;
  std::vector<std::uint8_t> local(4 << 20, 0xee);
  const auto good = memory.add(remote.data(), 2 << 20);
  const auto gone = memory.add(remote.data() + (3 << 20), 4096);
  ASSERT_TRUE(memory.drop(gone));
  std::vector<Move> moves = {
      move(local.data(), remote.data(), 1 << 20, good),
      move(local.data() + (1 << 20), remote.data() + (2 << 20) - 100, 101, good),  // one byte past the end
      move(local.data() + (2 << 20), remote.data() + (3 << 20), 4096, gone),
      move(local.data() + (3 << 20), remote.data() + (1 << 20), 4096, good),
  };
  auto sink = post(Op::kRead, moves);
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->rest(), std::nullopt);
  EXPECT_EQ(sink->failed_.at(1).status(), Status::kParamInvalid);
  EXPECT_EQ(sink->failed_.at(2).status(), Status::kStale);
  EXPECT_EQ(sink->failed_.size(), 2u);
  EXPECT_EQ(sink->moved_[0], 1u << 20);
  EXPECT_EQ(sink->moved_[1] + sink->moved_[2], 0u);
  EXPECT_EQ(sink->moved_[3], 4096u);
  EXPECT_EQ(std::memcmp(local.data(), remote.data(), 1 << 20), 0);
  EXPECT_EQ(std::memcmp(local.data() + (3 << 20), remote.data() + (1 << 20), 4096), 0);
  EXPECT_TRUE(all_are(std::span(local).subspan(1 << 20, 1 << 20), 0xee));
  EXPECT_TRUE(all_are(std::span(local).subspan(2 << 20, 1 << 20), 0xee));

  moves.erase(moves.begin());
  moves.pop_back();
  sink = post(Op::kWrite, moves);
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->failed_.size(), 2u);
  EXPECT_EQ(remote, untouched);
}

TEST_F(TcpTransportTest, MemoryTheHostCannotTouchGoesThroughItsDevice) {
  constexpr std::size_t kBytes = (2 << 20) + 333;
  FarDevice far(kBytes), near(kBytes);
  far.bytes = pattern(kBytes, 3);
  auto* base = reinterpret_cast<void*>(FarDevice::kBase);
  const auto key = memory.add(base, kBytes, &far);
  auto both = move(base, base, kBytes, key);
  both.device = &near;
  auto sink = post(Op::kRead, {both});
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->moved_[0], kBytes);
  EXPECT_EQ(near.bytes, far.bytes);

  near.bytes = pattern(kBytes, 4);
  sink = post(Op::kWrite, {both});
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->moved_[0], kBytes);
  EXPECT_EQ(near.bytes, far.bytes);

  near.broken = true;
  for (const auto op : {Op::kRead, Op::kWrite}) {
    sink = post(op, {both});
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->failed_.at(0).status(), Status::kFailed);
  }
  near.broken = false;
  far.broken = true;
  for (const auto op : {Op::kRead, Op::kWrite}) {
    sink = post(op, {both});
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->failed_.at(0).status(), Status::kFailed);
  }
}

TEST_F(TcpTransportTest, DeregisteringInTheMiddleOfAReadWaitsForNoPeerAndGivesStale) {
  // T0: owner sends the region | T1: deregister -> each byte that arrived is the region's, the rest is STALE.
  auto remote = pattern(64 << 20, 8);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  std::atomic<int> acquired{0};
  memory.on_acquire = [&] {
    ++acquired;
    acquired.notify_all();
  };
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  for (int seen = acquired; seen < 10; seen = acquired) acquired.wait(seen);
  ASSERT_TRUE(memory.drop(key));
  std::fill(remote.begin(), remote.end(), 0xdd);  // the owner uses its memory for something else
  ASSERT_TRUE(sink->wait());
  // The chunks that were on their way are whole; the transfer as such failed, unless it was quicker.
  if (sink->failed_.empty()) {
    EXPECT_EQ(sink->moved_[0], remote.size());
  } else {
    EXPECT_EQ(sink->failed_.at(0).status(), Status::kStale);
    EXPECT_LT(sink->moved_[0], remote.size());
  }
}

TEST_F(TcpTransportTest, ABrokenStreamIsReplacedAndItsRequestsGoOn) {
  build({.streams = 1, .threads = 1, .congestion = ""});
  auto remote = pattern(32 << 20, 2);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  std::atomic<int> acquired{0};
  memory.on_acquire = [&] {
    ++acquired;
    acquired.notify_all();
  };
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  for (int seen = acquired; seen < 5; seen = acquired) acquired.wait(seen);
  // The owner's side of the stream goes; the session lives.
  replace_owner()->stop();
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->rest(), std::nullopt);
  EXPECT_EQ(sink->moved_[0], remote.size());
  EXPECT_EQ(local, remote);
  EXPECT_GE(channel->opened, 2);
}

TEST_F(TcpTransportTest, AfterALostSessionEverythingFailsAtOnce) {
  auto remote = pattern(1 << 20, 2);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  channel->lose();
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->rest(), Status::kPeerLost);
}

TEST_F(TcpTransportTest, ClosingTheLinkEndsWhatIsUnderWay) {
  auto remote = pattern(64 << 20, 2);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  link.reset();
  ASSERT_TRUE(sink->wait());
  // Nothing may land from here on.
  std::fill(local.begin(), local.end(), 0);
  initiator.reset();
  EXPECT_TRUE(all_are(local, 0));
}

TEST_F(TcpTransportTest, ManyThreadsAndBatchesAtOnce) {
  build({.streams = 3, .threads = 2, .congestion = ""});
  auto remote = pattern(8 << 20, 2);
  const auto key = memory.add(remote.data(), remote.size());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<std::uint8_t> local(2 << 20);
      for (int round = 0; round < 50; ++round) {
        const std::size_t nbytes = 1 + random() % (round % 5 == 0 ? local.size() : 8192);
        const std::size_t at = random() % (remote.size() - nbytes);
        auto sink = std::make_shared<RecordingSink>(1);
        auto batch = std::make_shared<Batch>();
        batch->moves = {move(local.data(), remote.data() + at, nbytes, key)};
        batch->deadline = Deadline::after_ms(kTestMs);
        batch->sink = sink;
        link->post(batch);
        if (!sink->wait() || std::memcmp(local.data(), remote.data() + at, nbytes) != 0) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// An owner that takes streams and does nothing, like a frozen process.
struct FrozenPeerTest : TcpTransportTest {
  void serve(Fd far) override {
    MutexLock lock(held_mutex);
    held.push_back(std::move(far));
  }
  // It thaws.
  void thaw() {
    std::vector<Fd> streams;
    {
      MutexLock lock(held_mutex);
      streams.swap(held);
    }
    for (auto& stream : streams) owner->serve(std::move(stream), owners_channel);
  }
  Mutex held_mutex;
  std::vector<Fd> held;
};

TEST_F(FrozenPeerTest, ReadsTimeOutAndNothingLandsLater) {
  auto remote = pattern(4 << 20, 2);
  std::vector<std::uint8_t> local(remote.size(), 0);
  const auto key = memory.add(remote.data(), remote.size());
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)}, 50);
  auto queued = post(Op::kRead, {move(local.data(), remote.data(), 4096, key)}, 50);
  ASSERT_TRUE(sink->wait() && queued->wait());
  EXPECT_EQ(sink->rest(), Status::kTimeout);
  EXPECT_EQ(queued->rest(), Status::kTimeout);
  thaw();
  // A new transfer over the same streams comes after the old replies.
  std::vector<std::uint8_t> fresh(remote.size());
  auto later = post(Op::kRead, {move(fresh.data(), remote.data(), remote.size(), key)});
  ASSERT_TRUE(later->wait());
  EXPECT_EQ(fresh, remote);
  EXPECT_TRUE(all_are(local, 0));
}

TEST_F(FrozenPeerTest, CancelledWritesNeverReachThePeersMemory) {
  std::vector<std::uint8_t> remote(4 << 20, 0);
  auto source = pattern(remote.size(), 2);
  const auto key = memory.add(remote.data(), remote.size());
  for (const std::uint64_t nbytes : {std::uint64_t{4096}, std::uint64_t{4} << 20}) {
    auto sink = post(Op::kWrite, {move(source.data(), remote.data(), nbytes, key)});
    link->cancel(*last, Error(Status::kCancelled, "changed my mind"));
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->rest(), Status::kCancelled);
  }
  // T0: initiator aborts its streams | T1: owner wakes and finds the bytes in its sockets -> must not apply them.
  thaw();
  auto good = pattern(4096, 7);
  auto later = post(Op::kWrite, {move(good.data(), remote.data(), good.size(), key)});
  while (!later->wait(50)) thaw();
  EXPECT_EQ(std::memcmp(remote.data(), good.data(), good.size()), 0);
  EXPECT_TRUE(all_are(std::span(remote).subspan(4096), 0));
}

TEST_F(FrozenPeerTest, ACancelledReadEndsSoonAndAFinishedOneIsLeftAlone) {
  auto remote = pattern(1 << 20, 2);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  link->cancel(*last, Error(Status::kCancelled, "x"));
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->rest(), Status::kCancelled);
  link->cancel(*last, Error(Status::kCancelled, "again"));
}

// Field case B01: what an owner does with peers that speak the protocol and lie, or do not speak it.
TEST_F(TcpTransportTest, ForgedRequestsCloseTheirStreamAndTouchNothing) {
  auto remote = pattern(1 << 20, 2);
  const auto untouched = remote;
  const auto key = memory.add(remote.data() + 4096, 8192);
  const auto address = reinterpret_cast<std::uint64_t>(remote.data());
  const auto forge = [&](std::vector<std::uint8_t> bytes) -> std::size_t {
    auto [near, far] = tcp_pair();
    owner->serve(std::move(far), owners_channel);
    EXPECT_EQ(::send(near.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    ::shutdown(near.get(), SHUT_WR);
    std::size_t heard = 0;
    std::uint8_t buffer[4096];
    for (ssize_t got = 0; (got = ::recv(near.get(), buffer, sizeof buffer, 0)) > 0;)
      heard += static_cast<std::size_t>(got);
    return heard;
  };
  const auto request = [](DataOp op, std::vector<DataItem> items) {
    ByteWriter out;
    encode_data_request(out, op, 1, items);
    auto bytes = out.take();
    if (op == DataOp::kWrite) bytes.resize(bytes.size() + 64, 0xaa);
    return bytes;
  };
  constexpr std::size_t kRefused = kDataReplyHeadBytes + kDataFailureBytes;
  for (const auto op : {DataOp::kRead, DataOp::kWrite}) {
    const std::size_t tail = op == DataOp::kRead ? kDataReplyTailBytes : 0;
    // Well-formed, but outside what is registered: refused item by item, no payload.
    EXPECT_EQ(forge(request(op, {{key, address + 4095, 64}})), kRefused + tail);
    EXPECT_EQ(forge(request(op, {{key, address + 4096 + 8192 - 63, 64}})), kRefused + tail);
    EXPECT_EQ(forge(request(op, {{{key.index, key.generation + 1}, address + 4096, 64}})), kRefused + tail);
    EXPECT_EQ(forge(request(op, {{{99, 1}, address + 4096, 64}})), kRefused + tail);
    // Not well-formed: closed without a word.
    EXPECT_EQ(forge(request(op, {{key, ~0ULL - 10, 64}})), 0u);
    EXPECT_EQ(forge(request(op, {{key, address + 4096, kMaxDataPayload + 1}})), 0u);
    auto lying = request(op, {{key, address + 4096, 64}});
    lying[24] = 65;  // payload_bytes
    EXPECT_EQ(forge(lying), 0u);
    lying[16] = 0;  // no items
    EXPECT_EQ(forge(lying), 0u);
  }
  EXPECT_EQ(forge(std::vector<std::uint8_t>(100, 0xff)), 0u);
  EXPECT_EQ(forge({'O', 'S'}), 0u);
  EXPECT_EQ(remote, untouched);
  std::vector<std::uint8_t> local(8192);
  auto sink = post(Op::kRead, {move(local.data(), remote.data() + 4096, 8192, key)});
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(std::memcmp(local.data(), remote.data() + 4096, 8192), 0);
}

TEST(TcpOptions, AreHonouredOrRefused) {
  FakeMemory memory;
  EXPECT_EQ(make_tcp_transport({.streams = 0, .threads = 1, .congestion = ""}, memory).status(), Status::kParamInvalid);
  EXPECT_EQ(make_tcp_transport({.streams = 65, .threads = 1, .congestion = ""}, memory).status(),
            Status::kParamInvalid);
  const auto bad = make_tcp_transport({.streams = 1, .threads = 1, .congestion = "no-such"}, memory);
  EXPECT_EQ(bad.status(), Status::kParamInvalid);
  EXPECT_THAT(bad.error().text(), ::testing::HasSubstr("no-such"));
  EXPECT_EQ(*tcp_congestion_in_use("reno"), "reno");
}

}  // namespace
}  // namespace onesided
