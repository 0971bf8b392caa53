#include "onesided/node/exchange/object_desc.h"

#include <gtest/gtest.h>

#include <random>

namespace onesided {
namespace {

ObjectDesc sample() {
  return {
      .tensors = {{MemType::kDevice, {2097152}}, {MemType::kHost, {}}, {MemType::kHost, {1, 300, UINT64_MAX - 301}}},
      .regions = "the engine's description"};
}

TEST(ObjectDesc, RoundTrips) {
  const auto back = ObjectDesc::decode(sample().encode());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, sample());
}

TEST(ObjectDesc, AnEmptyObjectIsAFewBytes) {
  const std::string bytes = ObjectDesc{}.encode();
  EXPECT_EQ(bytes.size(), 6u);
  EXPECT_EQ(ObjectDesc::decode(bytes).value(), ObjectDesc{});
}

TEST(ObjectDesc, IsCompact) {
  ObjectDesc many;
  for (int i = 0; i < 10'000; ++i) many.tensors.push_back({MemType::kDevice, {1 << 20}});
  many.regions = "x";
  EXPECT_LE(many.encode().size(), 4u * 10'000 + 16);
}

TEST(ObjectDesc, RefusesEveryTruncation) {
  const std::string bytes = sample().encode();
  const std::size_t head = bytes.size() - sample().regions.size();
  for (std::size_t length = 0; length <= head; ++length)
    EXPECT_FALSE(ObjectDesc::decode(bytes.substr(0, length)).ok()) << length;
}

TEST(ObjectDesc, NamesAnotherVersion) {
  std::string bytes = sample().encode();
  bytes[4] = 9;
  const auto refused = ObjectDesc::decode(bytes);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("version 9"), std::string::npos) << refused.error().text();
}

TEST(ObjectDesc, RefusesFalseCountsBeforeAllocation) {
  const std::string huge = std::string("OSRO\x01", 5) + "\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_FALSE(ObjectDesc::decode(huge).ok());
  // One tensor that claims 2^40 pieces.
  EXPECT_FALSE(ObjectDesc::decode(std::string("OSRO\x01\x01", 6) + "\x80\x80\x80\x80\x80\x40").ok());
}

TEST(ObjectDesc, RefusesLengthsThatOverflowAndZeroLengths) {
  ObjectDesc wraps{.tensors = {{MemType::kHost, {UINT64_MAX, 1}}}, .regions = "r"};
  EXPECT_FALSE(ObjectDesc::decode(wraps.encode()).ok());
  ObjectDesc zero{.tensors = {{MemType::kHost, {0}}}, .regions = "r"};
  EXPECT_FALSE(ObjectDesc::decode(zero.encode()).ok());
}

TEST(ObjectDesc, RefusesALongerEncodingOfANumber) {
  EXPECT_FALSE(ObjectDesc::decode(std::string("OSRO\x01\x80\x00", 7)).ok());
}

// Every byte string decodes to an object or an error, and an object is encoded to the same bytes again.
TEST(ObjectDesc, IsTotalOverMutations) {
  std::mt19937_64 random(7);
  const std::string bytes = sample().encode();
  for (int round = 0; round < 20'000; ++round) {
    std::string mutated = bytes;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits)
      mutated[random() % mutated.size()] = static_cast<char>(random());
    mutated.resize(random() % (mutated.size() + 1));
    const auto decoded = ObjectDesc::decode(mutated);
    if (decoded.ok()) {
      EXPECT_EQ(decoded->encode(), mutated) << "seed 7, round " << round;
    }
  }
}

}  // namespace
}  // namespace onesided
