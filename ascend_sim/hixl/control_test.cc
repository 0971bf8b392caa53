#include "control.h"

#include <gtest/gtest.h>

#include <random>

namespace onesided::hixl_abi {
namespace {

const Control kMessages[] = {
    Hello{7, "127.0.0.1:4000"},
    HelloReply{8, Status::kSuccess, "", true, {{0x200000, 0x200000, MemType::kDevice}, {0x1000, 16, MemType::kHost}}},
    HelloReply{9, Status::kFailed, "Invalid para. va=0x10200 page_size=2097152", false, {}},
    StageRequest{10, "[::1]:5", true, 0x7000, 1000, {{0x1000, 3}, {0x9000, 1}}},
    StageReply{11, Status::kTimeout, "late"},
};

TEST(Control, RoundTrip) {
  for (const Control& message : kMessages) {
    const auto back = decode(encode(message));
    ASSERT_TRUE(back.ok()) << back.error().text();
    EXPECT_EQ(*back, message);
  }
}

TEST(Control, PrefixesAndTrailingBytesAreRefused) {
  for (const Control& message : kMessages) {
    const std::string bytes = encode(message);
    for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode(bytes.substr(0, n)).ok()) << n;
    EXPECT_FALSE(decode(bytes + '\0').ok());
  }
}

TEST(Control, ValuesNoPeerOfOursSendsAreRefused) {
  EXPECT_FALSE(decode(encode(HelloReply{1, static_cast<Status>(12345), "", false, {}})).ok());
  EXPECT_FALSE(decode(encode(HelloReply{1, Status::kSuccess, "", false, {{~0ULL, 2, MemType::kHost}}})).ok());
  EXPECT_FALSE(
      decode(encode(HelloReply{
                 1, Status::kSuccess, "", false, {{0x1000, 16, MemType::kHost}, {0x1008, 16, MemType::kHost}}}))
          .ok());
  EXPECT_FALSE(decode(encode(StageRequest{1, "a", true, 0x1000, 10, {}})).ok());
  EXPECT_FALSE(decode(encode(StageRequest{1, "a", true, 0x1000, -1, {{1, 1}}})).ok());
  EXPECT_FALSE(decode(encode(StageRequest{1, "a", true, ~0ULL, 1, {{1, 1}}})).ok());
  EXPECT_FALSE(decode(encode(StageRequest{1, "a", true, 1, 1, {{1, ~0ULL - 1}, {1, 5}}})).ok());
}

TEST(Control, RandomBytesAreDecodedOrRefused) {
  std::mt19937_64 random(20260101);
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes = encode(kMessages[random() % std::size(kMessages)]);
    for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    const auto message = decode(bytes);
    if (message.ok()) {
      EXPECT_EQ(encode(*message), bytes);
    }
  }
}

}  // namespace
}  // namespace onesided::hixl_abi
