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

TEST(Offer, RequestAndAnswerOverAStream) {
  auto [asker, owner] = stream_pair();
  std::thread serving([&owner = owner] {
    int answers = 0;
    while (const auto tag = wait_request(owner)) {
      ++answers;
      EXPECT_TRUE(send_offer(owner, *tag, some_offer(), Deadline::after_ms(1000)).ok());
    }
    EXPECT_EQ(answers, 2);
  });
  {
    OfferStream stream(std::move(asker));
    EXPECT_EQ(*stream.ask(Deadline::after_ms(10'000)), some_offer());
    EXPECT_EQ(*stream.ask(Deadline::after_ms(10'000)), some_offer());
  }
  serving.join();
}

// An owner that was suspended answers an old request and the current one.
TEST(Offer, LateAnswersAreNotTakenForTheNextOne) {
  auto [asker, owner] = stream_pair();
  OfferStream stream(std::move(asker));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stream.ask(Deadline::after_ms(1)).status(), Status::kTimeout);
  // The first answer arrives in pieces, before and after another request that times out.
  auto late = some_offer();
  late.meta_version = 1;
  ASSERT_TRUE(send_offer(owner, *wait_request(owner), late, Deadline::after_ms(10'000)).ok());
  EXPECT_EQ(stream.ask(Deadline::after_ms(1)).status(), Status::kTimeout);
  std::thread serving([&owner = owner, &late] {
    while (const auto tag = wait_request(owner)) {
      const Offer offer = *tag == 5 ? some_offer() : late;
      EXPECT_TRUE(send_offer(owner, *tag, offer, Deadline::after_ms(10'000)).ok());
      if (*tag == 5) return;
    }
  });
  EXPECT_EQ(*stream.ask(Deadline::after_ms(10'000)), some_offer());
  serving.join();
}

TEST(Offer, OwnersThatDoNotAnswerAndOwnersThatClosed) {
  auto [asker, owner] = stream_pair();
  OfferStream stream(std::move(asker));
  EXPECT_EQ(stream.ask(Deadline::after_ms(20)).status(), Status::kTimeout);
  owner.reset();
  EXPECT_EQ(stream.ask(Deadline::after_ms(10'000)).status(), Status::kPeerLost);
}

TEST(Offer, AnOwnerRefusesOtherRequests) {
  auto [asker, owner] = stream_pair();
  ASSERT_EQ(::write(asker.get(), "xxxxx", 5), 5);
  EXPECT_FALSE(wait_request(owner));
}

TEST(Offer, AHugeSizeIsRefusedBeforeItIsAllocated) {
  auto [asker, owner] = stream_pair();
  ASSERT_EQ(::write(owner.get(), "\1\0\0\0\xff\xff\xff\xff", 8), 8);
  EXPECT_EQ(OfferStream(std::move(asker)).ask(Deadline::after_ms(10'000)).status(), Status::kParamInvalid);
}

}  // namespace
}  // namespace onesided::ascend
