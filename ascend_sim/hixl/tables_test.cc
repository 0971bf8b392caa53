// The rules that vendor-style programs rely on, one by one: registration, spans, request handles.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "memory_table.h"
#include "onesided/base/align.h"
#include "request_table.h"
#include "span_split.h"

namespace onesided::hixl_abi {
namespace {

constexpr auto kHost = MemType::kHost;
constexpr auto kDevice = MemType::kDevice;

std::vector<std::array<std::uint64_t, 3>> plain(const std::vector<Item>& items) {
  std::vector<std::array<std::uint64_t, 3>> out;
  for (const Item& item : items) out.push_back({item.local, item.remote, item.nbytes});
  return out;
}

TEST(MemoryTable, SameRangeTwiceIsOneHandleAndCounted) {
  MemoryTable table;
  const auto first = table.add({0x1000, 0x100, kHost});
  const auto second = table.add({0x1000, 0x100, kHost});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->handle, second->handle);
  EXPECT_TRUE(first->fresh);
  EXPECT_FALSE(second->fresh);
  EXPECT_FALSE(table.remove(first->handle)->last);
  EXPECT_TRUE(table.snapshot()->covers(0x1000, 0x100));
  EXPECT_TRUE(table.remove(first->handle)->last);
  EXPECT_FALSE(table.snapshot()->covers(0x1000, 1));
  EXPECT_FALSE(table.remove(first->handle).has_value());
}

TEST(MemoryTable, BadRangesAreRefusedAndChangeNothing) {
  MemoryTable table;
  ASSERT_TRUE(table.add({0x1000, 0x1000, kHost}).ok());
  EXPECT_EQ(table.add({0, 16, kHost}).status(), Status::kParamInvalid);
  EXPECT_EQ(table.add({0x9000, 0, kHost}).status(), Status::kParamInvalid);
  EXPECT_EQ(table.add({~0ULL - 4, 16, kHost}).status(), Status::kParamInvalid);
  EXPECT_EQ(table.add({0x1800, 0x1000, kHost}).status(), Status::kParamInvalid);
  EXPECT_EQ(table.add({0x0800, 0x0801, kHost}).status(), Status::kParamInvalid);
  EXPECT_EQ(table.add({0x1000, 0x800, kHost}).status(), Status::kParamInvalid);
  EXPECT_EQ(table.add({0x0800, 0x4000, kHost}).status(), Status::kParamInvalid);
  EXPECT_EQ(table.snapshot()->size(), 1U);
}

TEST(MemoryTable, NeighboursAndTheOtherTypeAreFine) {
  MemoryTable table;
  ASSERT_TRUE(table.add({0x1000, 0x1000, kHost}).ok());
  EXPECT_TRUE(table.add({0x2000, 0x1000, kHost}).ok());
  EXPECT_TRUE(table.add({0x0800, 0x0800, kHost}).ok());
  EXPECT_TRUE(table.add({0x1800, 0x1000, kDevice}).ok());
  EXPECT_EQ(table.snapshot()->size(), 4U);
}

TEST(SegmentSet, RunsAndCoversAcrossNeighbours) {
  SegmentSet set;
  set.insert({0x1000, 0x1000, kHost});
  set.insert({0x2000, 0x1000, kHost});
  set.insert({0x2800, 0x4000, kDevice});
  EXPECT_EQ(set.run(0x1800, 0x10000), 0x800U);
  EXPECT_EQ(set.run(0x2900, 0x10000), 0x3f00U) << "the longer of two that hold the address";
  EXPECT_EQ(set.run(0x0fff, 1), 0U);
  EXPECT_TRUE(set.covers(0x1000, 0x5800));
  EXPECT_FALSE(set.covers(0x1000, 0x5801));
  EXPECT_FALSE(set.covers(0x0fff, 2));
  EXPECT_FALSE(set.covers(0x1000, 0));
  EXPECT_FALSE(set.covers(~0ULL, 2));
}

TEST(SplitItems, CutsAtBordersOfBothSides) {
  SegmentSet local;
  local.insert({0x1000, 0x1000, kHost});
  local.insert({0x2000, 0x1000, kHost});
  SegmentSet remote;
  remote.insert({0x9000, 0x1800, kHost});
  remote.insert({0xa800, 0x1000, kHost});
  const auto split = split_items(std::vector<Item>{{0x1000, 0x9000, 0x2000}, {0x1000, 0xa800, 8}}, local, remote);
  ASSERT_TRUE(split.ok());
  const std::vector<Item> expected = {
      {0x1000, 0x9000, 0x1000}, {0x2000, 0xa000, 0x800}, {0x2800, 0xa800, 0x800}, {0x1000, 0xa800, 8}};
  EXPECT_EQ(plain(split->direct), plain(expected));
  EXPECT_TRUE(split->staged.empty());
}

TEST(SplitItems, WhatIsRegisteredNowhereIsStagedOrRefused) {
  SegmentSet local;
  local.insert({0x1000, 0x1000, kHost});
  SegmentSet remote;
  remote.insert({0x9000, 0x1000, kHost});
  const std::vector<Item> items = {{0x1000, 0x9000, 16}, {0x5000, 0x9000, 16}, Item{0x1000, 0x9ff8, 16}};
  const auto split = split_items(items, local, remote);
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(plain(split->direct), plain({Item{0x1000, 0x9000, 16}}));
  EXPECT_EQ(plain(split->staged), plain({Item{0x5000, 0x9000, 16}, Item{0x1000, 0x9ff8, 16}}));
}

TEST(SplitItems, BadItemsAreRefused) {
  const SegmentSet none;
  EXPECT_EQ(split_items({}, none, none).status(), Status::kParamInvalid);
  for (const Item item : {Item{0, 1, 1}, Item{1, 0, 1}, Item{1, 1, 0}, Item{~0ULL, 1, 2}, Item{1, ~0ULL, 2}})
    EXPECT_EQ(split_items(std::vector<Item>{item}, none, none).status(), Status::kParamInvalid);
}

TEST(RequestTable, EndIsToldOnceWhoeverAsks) {
  RequestTable<int> table;
  const auto handle = table.add(std::make_shared<int>(7));
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(handle + 1), nullptr);
  std::atomic<int> told = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      if (table.find(handle) && table.retire(handle)) ++told;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(table.find(handle), nullptr);
  EXPECT_NE(table.add(std::make_shared<int>(8)), handle);
  EXPECT_EQ(table.size(), 1U);
}

}  // namespace
}  // namespace onesided::hixl_abi
