#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "onesided/transport/tcp/tcp_fixture.h"

namespace onesided::tcp::testing {
namespace {

// Lets a test act in the middle of a transfer: after the owner has started the given number of chunks.
struct InTheMiddleTest : TcpTransportTest {
  void SetUp() override {
    TcpTransportTest::SetUp();
    memory.on_acquire = [this] {
      ++acquired_;
      acquired_.notify_all();
    };
  }
  void wait_until_acquired(int chunks) {
    for (int seen = acquired_; seen < chunks; seen = acquired_) acquired_.wait(seen);
  }

 private:
  std::atomic<int> acquired_{0};
};

TEST_F(InTheMiddleTest, DeregisteringDuringAReadDoesNotWaitForThePeerAndGivesStale) {
  // T0: owner sends the region | T1: deregister -> each byte that arrived is the region's, the rest is STALE.
  auto remote = pattern(64 << 20, 8);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  wait_until_acquired(10);
  ASSERT_TRUE(memory.drop(key));
  std::fill(remote.begin(), remote.end(), 0xdd);  // the owner reuses its memory
  ASSERT_TRUE(sink->wait());
  // Chunks in flight are complete. The transfer failed, unless it was faster than the deregistration.
  if (sink->failed_.empty()) {
    EXPECT_EQ(sink->moved_[0], remote.size());
  } else {
    EXPECT_EQ(sink->failed_.at(0).status(), Status::kStale);
    EXPECT_LT(sink->moved_[0], remote.size());
  }
}

TEST_F(InTheMiddleTest, ABrokenStreamIsReplacedAndItsRequestsContinue) {
  build({.streams = 1, .threads = 1, .congestion = ""});
  auto remote = pattern(32 << 20, 2);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  wait_until_acquired(5);
  // The owner's side of the stream is closed; the session remains open.
  replace_owner()->stop();
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->rest(), std::nullopt);
  EXPECT_EQ(sink->moved_[0], remote.size());
  EXPECT_EQ(local, remote);
  EXPECT_GE(channel->opened, 2);
}

TEST_F(TcpTransportTest, AfterALostSessionEveryBatchFailsImmediately) {
  auto remote = pattern(1 << 20, 2);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  channel->lose();
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->rest(), Status::kPeerLost);
}

TEST_F(TcpTransportTest, ClosingTheLinkEndsUnfinishedBatches) {
  auto remote = pattern(64 << 20, 2);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  link.reset();
  ASSERT_TRUE(sink->wait());
  // From here on no byte may arrive.
  std::fill(local.begin(), local.end(), 0);
  initiator.reset();
  EXPECT_TRUE(all_are(local, 0));
}

// Memory was made read-only, or unmapped, after it was registered: a peer that writes to it gets an error, and nothing
// else fails.
TEST_F(TcpTransportTest, AWriteIntoMemoryThatCannotBeWrittenFailsItsItemOnly) {
  constexpr std::size_t kBytes = 1 << 20;
  void* fixed = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(fixed, MAP_FAILED);
  std::vector<std::uint8_t> good(kBytes);
  auto source = pattern(kBytes, 3);
  const auto fixed_key = memory.add(fixed, kBytes), good_key = memory.add(good.data(), good.size());
  const int opened = channel->opened;
  // Payload that arrives together with the head of the request, and separately.
  for (const std::size_t nbytes : {std::size_t{100}, kBytes}) {
    std::fill(good.begin(), good.end(), 0);
    auto sink = post(Op::kWrite, {move(source.data(), fixed, nbytes, fixed_key),
                                  move(source.data(), good.data(), nbytes, good_key)});
    ASSERT_TRUE(sink->wait());
    ASSERT_TRUE(sink->failed_.contains(0));
    EXPECT_EQ(sink->failed_.at(0).status(), Status::kStale);
    EXPECT_EQ(sink->failed_.size(), 1u);
    EXPECT_EQ(sink->moved_[1], nbytes);
    EXPECT_EQ(std::memcmp(good.data(), source.data(), nbytes), 0);
  }
  EXPECT_LE(channel->opened, std::max(opened, 2)) << "a stream was closed";
  ::munmap(fixed, kBytes);
}

// An owner that accepts streams and does nothing, like a suspended process.
struct SuspendedPeerTest : TcpTransportTest {
  void serve(Fd far) override {
    MutexLock lock(held_mutex);
    held.push_back(std::move(far));
  }
  // The owner continues.
  void resume() {
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

TEST_F(SuspendedPeerTest, ReadsTimeOutAndNoByteArrivesLater) {
  auto remote = pattern(4 << 20, 2);
  std::vector<std::uint8_t> local(remote.size(), 0);
  const auto key = memory.add(remote.data(), remote.size());
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)}, 50);
  auto queued = post(Op::kRead, {move(local.data(), remote.data(), 4096, key)}, 50);
  ASSERT_TRUE(sink->wait() && queued->wait());
  EXPECT_EQ(sink->rest(), Status::kTimeout);
  EXPECT_EQ(queued->rest(), Status::kTimeout);
  resume();
  // A new transfer over the same streams comes after the old replies.
  std::vector<std::uint8_t> fresh(remote.size());
  auto later = post(Op::kRead, {move(fresh.data(), remote.data(), remote.size(), key)});
  ASSERT_TRUE(later->wait());
  EXPECT_EQ(fresh, remote);
  EXPECT_TRUE(all_are(local, 0));
}

TEST_F(SuspendedPeerTest, CancelledWritesNeverReachThePeersMemory) {
  std::vector<std::uint8_t> remote(4 << 20, 0);
  auto source = pattern(remote.size(), 2);
  const auto key = memory.add(remote.data(), remote.size());
  for (const std::uint64_t nbytes : {std::uint64_t{4096}, std::uint64_t{4} << 20}) {
    auto sink = post(Op::kWrite, {move(source.data(), remote.data(), nbytes, key)});
    link->cancel(*last, Error(Status::kCancelled, "cancelled by the test"));
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->rest(), Status::kCancelled);
  }
  // T0: initiator aborts its streams | T1: owner continues and finds the bytes in its sockets -> must not apply them.
  resume();
  auto good = pattern(4096, 7);
  auto later = post(Op::kWrite, {move(good.data(), remote.data(), good.size(), key)});
  while (!later->wait(50)) resume();
  EXPECT_EQ(std::memcmp(remote.data(), good.data(), good.size()), 0);
  EXPECT_TRUE(all_are(std::span(remote).subspan(4096), 0));
}

TEST_F(SuspendedPeerTest, ACancelledReadEndsSoonAndCancelOfAFinishedOneIsANoOp) {
  auto remote = pattern(1 << 20, 2);
  std::vector<std::uint8_t> local(remote.size());
  const auto key = memory.add(remote.data(), remote.size());
  auto sink = post(Op::kRead, {move(local.data(), remote.data(), remote.size(), key)});
  link->cancel(*last, Error(Status::kCancelled, "x"));
  ASSERT_TRUE(sink->wait());
  EXPECT_EQ(sink->rest(), Status::kCancelled);
  link->cancel(*last, Error(Status::kCancelled, "again"));
}

// T0: waits for the batch and receives for it | T1: cancels -> T0 has nothing left to receive, and its wait ends.
TEST_F(SuspendedPeerTest, AWaitingThreadDoesNotBlockCancel) {
  auto remote = pattern(1 << 20, 2);
  const auto key = memory.add(remote.data(), remote.size());
  for (const auto op : {Op::kRead, Op::kWrite}) {
    std::vector<std::uint8_t> local(remote.size());
    auto sink = post(op, {move(local.data(), remote.data(), remote.size(), key)});
    std::atomic<bool> begun{false};
    std::thread helper([&, batch = last] {
      while (!sink->wait(0)) {
        (void)link->help(*batch);
        begun = true;
      }
    });
    while (!begun) std::this_thread::yield();
    link->cancel(*last, Error(Status::kCancelled, "x"));
    EXPECT_TRUE(sink->wait());
    helper.join();
    EXPECT_EQ(sink->rest(), Status::kCancelled);
    EXPECT_FALSE(link->help(*last));
  }
}

// Field case B01: an owner handles peers that send false requests or violate the protocol.
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
    // Well-formed, but outside registered memory: refused item by item, no payload.
    EXPECT_EQ(forge(request(op, {{key, address + 4095, 64}})), kRefused + tail);
    EXPECT_EQ(forge(request(op, {{key, address + 4096 + 8192 - 63, 64}})), kRefused + tail);
    EXPECT_EQ(forge(request(op, {{{key.index, key.generation + 1}, address + 4096, 64}})), kRefused + tail);
    EXPECT_EQ(forge(request(op, {{{99, 1}, address + 4096, 64}})), kRefused + tail);
    // Not well-formed: closed without a reply.
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

}  // namespace
}  // namespace onesided::tcp::testing
