#include "onesided/node/weights/box_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace onesided {
namespace {

using Words = std::vector<std::uint64_t>;

// A box with contiguous storage of its own.
Words box(std::uint64_t parameter, std::uint64_t item, std::uint64_t base, const Words& from, const Words& size,
          std::uint64_t element_bytes) {
  Words words{parameter, item, base};
  words.insert(words.end(), from.begin(), from.end());
  words.insert(words.end(), size.begin(), size.end());
  Words strides(size.size(), element_bytes);
  for (std::size_t d = size.size(); d-- > 1;) strides[d - 1] = strides[d] * size[d];
  words.insert(words.end(), strides.begin(), strides.end());
  return words;
}

BoxPlanner planner_of(const Words& shape, std::uint64_t element_bytes) {
  BoxPlanner planner;
  Words table{element_bytes, shape.size()};
  table.insert(table.end(), shape.begin(), shape.end());
  EXPECT_TRUE(planner.add_parameters({"w"}, table).ok());
  return planner;
}

TEST(BoxPlan, RowsOfAColumnShardAreOneItem) {
  auto planner = planner_of({8, 6}, 4);
  ASSERT_TRUE(planner.add_sources(0, box(0, 0, 0, {0, 0}, {4, 6}, 4)).ok());
  ASSERT_TRUE(planner.add_sources(1, box(0, 0, 0, {4, 0}, {4, 6}, 4)).ok());
  ASSERT_TRUE(planner.add_targets(box(0, 0, 1000, {0, 3}, {8, 3}, 4)).ok());
  const auto plan = planner.plan(0);
  ASSERT_TRUE(plan.ok()) << plan.error().text();
  ASSERT_EQ(plan->moves.size(), 2);
  EXPECT_EQ(plan->nbytes, 96);
  EXPECT_EQ(plan->moves[0].row_bytes, 12);
  EXPECT_EQ(plan->moves[0].remote_pitch, 24);
  EXPECT_EQ(plan->moves[0].local_pitch, 12);
  EXPECT_EQ(plan->moves[0].offset, 12);
  EXPECT_EQ(plan->moves[1].holder, 1);
  EXPECT_EQ(plan->moves[1].local, 1000 + 4 * 12);
}

TEST(BoxPlan, HolesOverlapsAndForeignBoxesAreNamed) {
  auto hole = planner_of({8}, 4);
  ASSERT_TRUE(hole.add_sources(0, box(0, 0, 0, {0}, {4}, 4)).ok());
  ASSERT_TRUE(hole.add_targets(box(0, 0, 1000, {2}, {4}, 4)).ok());
  EXPECT_THAT(hole.plan(0).error().text(),
              ::testing::HasSubstr("2 of the 4 elements at [2] + [4] are held by no rank"));
  auto overlap = planner_of({8}, 4);
  ASSERT_TRUE(overlap.add_sources(0, box(0, 0, 0, {0}, {5}, 4)).ok());
  ASSERT_TRUE(overlap.add_sources(3, box(0, 0, 0, {4}, {4}, 4)).ok());
  ASSERT_TRUE(overlap.add_targets(box(0, 0, 1000, {0}, {8}, 4)).ok());
  EXPECT_THAT(overlap.plan(0).error().text(), ::testing::HasSubstr("holder 3 overlap"));
  auto planner = planner_of({8}, 4);
  EXPECT_EQ(planner.add_sources(0, box(0, 0, 0, {5}, {4}, 4)).status(), Status::kParamInvalid);
  EXPECT_EQ(planner.add_sources(0, box(1, 0, 0, {0}, {4}, 4)).status(), Status::kParamInvalid);
  EXPECT_EQ(planner.add_sources(0, box(0, 0, ~0ULL - 3, {0}, {4}, 4)).status(), Status::kParamInvalid);
  EXPECT_EQ(planner.add_sources(0, Words{0, 0}).status(), Status::kParamInvalid);
}

TEST(BoxPlan, ReplicasShareTheLoad) {
  BoxPlanner planner;
  Words shapes;
  std::vector<std::string> names;
  for (int p = 0; p < 100; ++p) {
    names.push_back(std::to_string(p));
    shapes.insert(shapes.end(), {4, 1, 256});
  }
  ASSERT_TRUE(planner.add_parameters(names, shapes).ok());
  for (std::uint64_t p = 0; p < 100; ++p) {
    for (std::uint32_t holder = 0; holder < 4; ++holder)
      ASSERT_TRUE(planner.add_sources(holder, box(p, p, 0, {0}, {256}, 4)).ok());
    ASSERT_TRUE(planner.add_targets(box(p, 0, 4096 + p * 1024, {0}, {256}, 4)).ok());
  }
  const auto plan = planner.plan(2);
  ASSERT_TRUE(plan.ok());
  Words load(4);
  for (const auto& move : plan->moves) load[move.holder] += move.nbytes;
  EXPECT_THAT(load, ::testing::Each(25 * 1024));
  EXPECT_EQ(plan->moves.size(), 100);
}

// Cuts [0, extent) at random.
std::vector<std::pair<std::uint64_t, std::uint64_t>> cuts(std::uint64_t extent, std::mt19937_64& random) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  for (std::uint64_t at = 0; at < extent;) {
    const auto size = std::uniform_int_distribution<std::uint64_t>(1, extent - at)(random);
    out.emplace_back(at, size);
    at += size;
  }
  return out;
}

TEST(BoxPlan, RandomCutsMoveEachElementToItsPlaceOnce) {
  constexpr std::uint64_t kSeed = 14;
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    Words shape;
    for (std::uint64_t d = 0, dims = random() % 4; d < dims; ++d) shape.push_back(1 + random() % 9);
    const auto grid = [&] {
      std::vector<std::pair<Words, Words>> boxes{{{}, {}}};
      for (const auto extent : shape) {
        const auto parts = cuts(extent, random);
        std::vector<std::pair<Words, Words>> next;
        for (const auto& before : boxes)
          for (const auto& [from, size] : parts) {
            next.push_back(before);
            next.back().first.push_back(from);
            next.back().second.push_back(size);
          }
        boxes = std::move(next);
      }
      return boxes;
    };
    const auto number_at = [&](const Words& at) {
      std::uint32_t number = 7;
      for (std::size_t d = 0; d < at.size(); ++d) number = number * 16 + static_cast<std::uint32_t>(at[d]);
      return number;
    };
    const auto each = [](const Words& from, const Words& size, auto visit) {
      Words at = from;
      while (true) {
        visit(at);
        std::size_t d = at.size();
        while (d-- > 0 && ++at[d] == from[d] + size[d]) at[d] = from[d];
        if (d == static_cast<std::size_t>(-1)) return;
      }
    };
    auto planner = planner_of(shape, 4);
    std::vector<std::vector<std::uint32_t>> held;
    for (const auto& [from, size] : grid()) {
      held.emplace_back();
      each(from, size, [&](const Words& at) { held.back().push_back(number_at(at)); });
      ASSERT_TRUE(planner.add_sources(static_cast<std::uint32_t>(held.size() - 1), box(0, 0, 0, from, size, 4)).ok());
    }
    std::vector<std::vector<std::uint32_t>> wanted, got;
    for (const auto& [from, size] : grid()) {
      wanted.emplace_back();
      each(from, size, [&](const Words& at) { wanted.back().push_back(number_at(at)); });
      got.emplace_back(wanted.back().size());
      ASSERT_TRUE(
          planner.add_targets(box(0, 0, reinterpret_cast<std::uint64_t>(got.back().data()), from, size, 4)).ok());
    }
    const auto plan = planner.plan(static_cast<std::uint64_t>(round));
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    std::uint64_t moved = 0;
    for (const auto& move : plan->moves) {
      const auto row = move.row_bytes == 0 ? move.nbytes : move.row_bytes;
      for (std::uint64_t r = 0; r < move.nbytes / row; ++r)
        std::memcpy(reinterpret_cast<char*>(move.local) + r * move.local_pitch,
                    reinterpret_cast<const char*>(held[move.holder].data()) + move.offset + r * move.remote_pitch, row);
      moved += move.nbytes;
    }
    EXPECT_EQ(moved, plan->nbytes);
    std::uint64_t all = 4;
    for (const auto extent : shape) all *= extent;
    EXPECT_EQ(moved, all);
    EXPECT_EQ(wanted, got);
  }
}

}  // namespace
}  // namespace onesided
