// Limits on what an authenticated peer can make an owner hold: a number of streams per session, and none without a
// session.
#include <gtest/gtest.h>
#include <poll.h>

#include "onesided/transport/tcp/tcp_fixture.h"

namespace onesided::tcp::testing {
namespace {

// The other end has closed the stream.
bool ended(const Fd& stream) {
  pollfd readable{stream.get(), POLLIN, 0};
  if (::poll(&readable, 1, static_cast<int>(kTestMs)) != 1) return false;
  char byte = 0;
  return ::recv(stream.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

bool open_still(const Fd& stream) {
  char byte = 0;
  return ::recv(stream.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

TEST(ServedLimits, ASessionHasALimitOfStreamsAndTheyEndWithIt) {
  FakeMemory memory;
  const auto transport = make_tcp_transport({.streams = 2, .threads = 1, .congestion = ""}, memory);
  ASSERT_TRUE(transport.ok());
  const auto one = std::make_shared<FakeChannel>([](Fd) {});
  const auto other = std::make_shared<FakeChannel>([](Fd) {});
  constexpr std::size_t kMost = 64;
  std::vector<Fd> streams;
  const auto open = [&](const std::shared_ptr<FakeChannel>& channel) {
    auto [near, far] = tcp_pair();
    (*transport)->serve(std::move(far), channel);
    streams.push_back(std::move(near));
  };
  for (std::size_t i = 0; i < kMost + 3; ++i) open(one);
  for (std::size_t i = kMost; i < kMost + 3; ++i) EXPECT_TRUE(ended(streams[i])) << i;
  open(other);
  for (std::size_t i = 0; i < kMost; ++i) EXPECT_TRUE(open_still(streams[i])) << i;
  one->lose();
  (*transport)->session_ended(*one);
  for (std::size_t i = 0; i < kMost; ++i) EXPECT_TRUE(ended(streams[i])) << i;
  EXPECT_TRUE(open_still(streams.back())) << "another session's stream was closed";
  (*transport)->stop();
}

}  // namespace
}  // namespace onesided::tcp::testing
