// CI has no time for libFuzzer; a fixed number of seeded mutations of valid inputs finds the coarse mistakes, and
// the same ones on every machine.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "fuzz_target.h"

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::uint64_t kSeed = 20261130;
constexpr int kRounds = 20'000;

// Cuts, grows, splices and overwrites, as a fuzzer would.
void mutate(Input& input, const std::vector<Input>& seeds, std::mt19937_64& random) {
  const auto place = [&] { return input.empty() ? 0 : random() % input.size(); };
  switch (random() % 7) {
    case 0: input.resize(input.empty() ? 0 : place()); break;
    case 1: input.resize(input.size() + random() % 40, static_cast<std::uint8_t>(random())); break;
    case 2: {
      const auto& other = seeds[random() % seeds.size()];
      const auto from = other.empty() ? 0 : random() % other.size();
      input.resize(place());
      input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      break;
    }
    case 3:
      for (std::size_t i = place(), end = i + 8; i < std::min(end, input.size()); ++i) input[i] = 0xff;
      break;
    case 4:
      for (std::size_t i = place(), end = i + 4; i < std::min(end, input.size()); ++i) input[i] = 0;
      break;
    default:
      if (!input.empty()) input[place()] ^= static_cast<std::uint8_t>(1U << random() % 8);
  }
}

TEST(Fuzz, SeededMutations) {
  const auto seeds = fuzz_seeds();
  ASSERT_FALSE(seeds.empty());
  for (const auto& seed : seeds) LLVMFuzzerTestOneInput(seed.data(), seed.size());
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    Input input = seeds[random() % seeds.size()];
    const auto changes = 1 + random() % 4;
    for (std::uint64_t i = 0; i < changes; ++i) mutate(input, seeds, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

}  // namespace
