#include "onesided/node/exchange/tensor_store.h"

#include <gtest/gtest.h>

#include "onesided/node/exchange/fake_engine_port.h"
#include "onesided/node/exchange/object_desc.h"

namespace onesided {
namespace {

TensorSpan tensor(std::uint64_t address, std::uint64_t nbytes, MemoryId memory = 1) {
  const MemRange range{address, nbytes, MemType::kHost};
  return {.bytes = range, .whole = range, .memory = memory};
}

class TensorStoreTest : public ::testing::Test {
 protected:
  FakeEnginePort engine_;
  RegionRefs regions_{engine_, /*keep_idle=*/false};
  TensorStore store_{engine_, regions_};
};

TEST_F(TensorStoreTest, DescribesEveryTensorInOrder) {
  const auto published = store_.publish("a", std::vector{tensor(0x1000, 8), tensor(0, 0), tensor(0x2000, 16)}).value();
  EXPECT_EQ(published.nbytes, 24u);
  const ObjectDesc desc = ObjectDesc::decode(published.desc).value();
  ASSERT_EQ(desc.tensors.size(), 3u);
  EXPECT_EQ(desc.tensors[0].pieces, std::vector<std::uint64_t>{8});
  EXPECT_TRUE(desc.tensors[1].pieces.empty());
  EXPECT_EQ(desc.regions, "rr");
}

TEST_F(TensorStoreTest, AnObjectOfTensorsWithoutBytesNeedsNoRegion) {
  const auto published = store_.publish("a", std::vector{tensor(0, 0)}).value();
  EXPECT_TRUE(ObjectDesc::decode(published.desc).value().regions.empty());
  EXPECT_EQ(engine_.regions(), 0u);
  EXPECT_TRUE(store_.publish("none", {}).ok());
}

TEST_F(TensorStoreTest, ReleasesOnceAndReportsIt) {
  ASSERT_TRUE(store_.publish("a", std::vector{tensor(0x1000, 8)}).ok());
  EXPECT_EQ(engine_.regions(), 1u);
  EXPECT_TRUE(store_.release("a"));
  EXPECT_FALSE(store_.release("a"));
  EXPECT_FALSE(store_.release("never"));
  EXPECT_EQ(engine_.regions(), 0u);
  EXPECT_EQ(store_.counts().objects, 0u);
  EXPECT_EQ(store_.counts().nbytes, 0u);
}

// Ray keeps the result of a task's first attempt and describes it again.
TEST_F(TensorStoreTest, ARetriedTaskGetsTheSameDescription) {
  const auto first = store_.publish("a", std::vector{tensor(0x1000, 8)}).value();
  const auto again = store_.publish("a", std::vector{tensor(0x1000, 8)}).value();
  EXPECT_EQ(first.desc, again.desc);
  EXPECT_TRUE(store_.release("a"));
  EXPECT_EQ(engine_.regions(), 0u) << "held once, not twice";
}

TEST_F(TensorStoreTest, AFailureHoldsNothing) {
  engine_.fail_register.insert(0x3000);
  const auto failed = store_.publish("a", std::vector{tensor(0x1000, 8), tensor(0x3000, 8)});
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().text().find("tensor 1 of 2"), std::string::npos) << failed.error().text();
  EXPECT_EQ(engine_.regions(), 0u);
  EXPECT_FALSE(store_.find("a").has_value());
}

TEST_F(TensorStoreTest, RefusesBytesOutsideTheirMemory) {
  TensorSpan liar = tensor(0x1000, 8);
  liar.whole.nbytes = 4;
  EXPECT_EQ(store_.publish("a", std::vector{liar}).status(), Status::kParamInvalid);
  liar.bytes = {UINT64_MAX - 3, 8, MemType::kHost};
  EXPECT_EQ(store_.publish("a", std::vector{liar}).status(), Status::kParamInvalid);
}

TEST_F(TensorStoreTest, TwoObjectsShareATensor) {
  ASSERT_TRUE(store_.publish("a", std::vector{tensor(0x1000, 8)}).ok());
  ASSERT_TRUE(store_.publish("b", std::vector{tensor(0x1000, 8), tensor(0x1000, 8)}).ok());
  EXPECT_EQ(regions_.counts().registrations, 1u);
  store_.release("a");
  EXPECT_EQ(engine_.regions(), 1u);
  store_.release("b");
  EXPECT_EQ(engine_.regions(), 0u);
}

TEST_F(TensorStoreTest, TheVersionGrowsWithTheRegions) {
  const auto a = store_.publish("a", std::vector{tensor(0x1000, 8)}).value();
  const auto same = store_.publish("b", std::vector{tensor(0x1000, 8)}).value();
  const auto more = store_.publish("c", std::vector{tensor(0x2000, 8)}).value();
  EXPECT_EQ(a.meta_version, same.meta_version);
  EXPECT_GT(more.meta_version, a.meta_version);
}

}  // namespace
}  // namespace onesided
