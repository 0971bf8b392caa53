#include "onesided/transport/ascend/offer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

namespace onesided::ascend {
namespace {

Offer some_offer() { return {7, "[::1]:4000", {{0, 1}, {0, 2}, {3, 1}}}; }

std::pair<Fd, Fd> stream_pair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

TEST(Offer, RoundTrip) {
  for (const Offer& offer : {some_offer(), Offer{0, "10.0.0.1:1", {}}}) {
    const auto back = decode_offer(encode_offer(offer));
    ASSERT_TRUE(back.ok()) << back.error().text();
    EXPECT_EQ(*back, offer);
  }
}

TEST(Offer, DecoderIsTotal) {
  const auto bytes = encode_offer(some_offer());
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(decode_offer({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}).ok()) << n;
  auto longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(decode_offer(longer).ok());
  EXPECT_FALSE(decode_offer(encode_offer({1, "", {}})).ok());
  EXPECT_FALSE(decode_offer(encode_offer({1, "a:1", {{3, 1}, {0, 1}}})).ok());

  std::mt19937_64 random(7);
  for (int round = 0; round < 50'000; ++round) {
    auto changed = bytes;
    for (int i = 0; i < 2; ++i) changed[random() % changed.size()] = static_cast<std::uint8_t>(random());
    const auto offer = decode_offer(changed);
    if (offer) {
      EXPECT_EQ(encode_offer(*offer), changed);
    }
  }
}

TEST(Offer, AskedAndAnsweredOverAStream) {
  auto [asker, owner] = stream_pair();
  std::thread serving([&owner = owner] {
    int answers = 0;
    while (wait_request(owner)) {
      ++answers;
      EXPECT_TRUE(send_offer(owner, some_offer(), Deadline::after_ms(1000)).ok());
    }
    EXPECT_EQ(answers, 2);
  });
  EXPECT_EQ(*request_offer(asker, Deadline::after_ms(10'000)), some_offer());
  EXPECT_EQ(*request_offer(asker, Deadline::after_ms(10'000)), some_offer());
  asker.reset();
  serving.join();
}

TEST(Offer, SilentAndVanishedOwners) {
  auto [asker, owner] = stream_pair();
  EXPECT_EQ(request_offer(asker, Deadline::after_ms(20)).status(), Status::kTimeout);
  owner.reset();
  EXPECT_EQ(request_offer(asker, Deadline::after_ms(10'000)).status(), Status::kPeerLost);
}

TEST(Offer, AnOwnerRefusesOtherRequests) {
  auto [asker, owner] = stream_pair();
  ASSERT_EQ(::write(asker.get(), "x", 1), 1);
  EXPECT_FALSE(wait_request(owner));
}

TEST(Offer, AHugeSizeIsRefusedBeforeItIsAllocated) {
  auto [asker, owner] = stream_pair();
  ASSERT_EQ(::write(owner.get(), "\xff\xff\xff\xff", 4), 4);
  EXPECT_EQ(request_offer(asker, Deadline::after_ms(10'000)).status(), Status::kParamInvalid);
}

}  // namespace
}  // namespace onesided::ascend
