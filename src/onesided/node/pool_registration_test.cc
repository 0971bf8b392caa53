#include "onesided/node/pool_registration.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "onesided/memory/fake_device.h"

namespace onesided {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// An engine that only counts calls. Confined to the test's thread.
struct CountingEngine {
  std::map<std::uint64_t, std::uint64_t> regions;  // handle -> address
  std::uint64_t last_handle = 0;
  std::uint64_t refuse_above = UINT64_MAX;
  Status deregister_status = Status::kSuccess;

  RegistrationCalls calls() {
    return {[this](std::uint64_t address, std::uint64_t nbytes, MemType type) -> Result<std::uint64_t> {
              EXPECT_EQ(type, MemType::kDevice);
              if (nbytes > refuse_above)
                return Error{Status::kResourceExhausted, fmt::format("{} bytes are too many", nbytes)};
              regions[++last_handle] = address;
              return last_handle;
            },
            [this](std::uint64_t handle) -> Result<void> {
              if (deregister_status != Status::kSuccess) return Error{deregister_status, "a transfer is unfinished"};
              if (regions.erase(handle) == 1) return {};
              return Error{Status::kNotFound, "unknown handle"};
            }};
  }
};

class PoolRegistrationTest : public testing::Test {
 protected:
  FakeDevice device_;
  std::unique_ptr<Pool> pool_ = std::move(Pool::create(device_, make_device_source(device_), {})).value();
  CountingEngine engine_;
};

// Field case C08: a hundred updates of the same tensors register nothing more.
TEST_F(PoolRegistrationTest, EachSegmentIsRegisteredOnceForAllTensors) {
  auto joined = std::move(PoolRegistration::create(*pool_, engine_.calls())).value();
  for (int update = 0; update < 100; ++update) {
    std::vector<void*> weights;
    for (int i = 0; i < 20; ++i) weights.push_back(pool_->allocate(3 * kMiB).value().address);
    for (void* weight : weights) ASSERT_TRUE(pool_->free(weight).ok());
  }
  EXPECT_EQ(engine_.regions.size(), static_cast<std::size_t>(pool_->stats().segment.current));
  EXPECT_EQ(joined->registrations_made(), engine_.regions.size());
}

// Field case C09 (a): a new segment is registered immediately, a dropped segment is deregistered before it is freed.
TEST_F(PoolRegistrationTest, FollowsGrowthAndTrim) {
  ASSERT_TRUE(pool_->allocate(2 * kMiB).ok());
  auto joined = std::move(PoolRegistration::create(*pool_, engine_.calls())).value();
  EXPECT_EQ(joined->segments_registered(), 1u);
  void* large = pool_->allocate(64 * kMiB).value().address;
  EXPECT_EQ(joined->segments_registered(), 2u);
  ASSERT_TRUE(pool_->free(large).ok());
  pool_->trim();
  EXPECT_EQ(joined->segments_registered(), 1u);
  joined.reset();
  EXPECT_THAT(engine_.regions, IsEmpty());
  ASSERT_TRUE(pool_->allocate(64 * kMiB).ok());
  EXPECT_THAT(engine_.regions, IsEmpty()) << "the registration must be unsubscribed";
}

TEST_F(PoolRegistrationTest, AFailureInCreateDeregistersTheOthers) {
  ASSERT_TRUE(pool_->allocate(2 * kMiB).ok());
  ASSERT_TRUE(pool_->allocate(64 * kMiB).ok());
  engine_.refuse_above = 32 * kMiB;
  const auto joined = PoolRegistration::create(*pool_, engine_.calls());
  EXPECT_EQ(joined.status(), Status::kResourceExhausted);
  EXPECT_THAT(joined.error().text(), HasSubstr("too many"));
  EXPECT_THAT(engine_.regions, IsEmpty());
}

TEST_F(PoolRegistrationTest, MemoryInUseByATransferIsKeptUntilItEnds) {
  auto joined = std::move(PoolRegistration::create(*pool_, engine_.calls())).value();
  void* block = pool_->allocate(4 * kMiB).value().address;
  engine_.deregister_status = Status::kBusy;
  ASSERT_TRUE(pool_->free(block).ok());
  EXPECT_EQ(pool_->trim(), 0u);
  EXPECT_EQ(pool_->trim(), 0u);
  EXPECT_EQ(device_.used_bytes(), 4 * kMiB);
  ASSERT_EQ(joined->failures().size(), 1u) << "reported once, not at each attempt";
  EXPECT_THAT(joined->failures()[0].text(), HasSubstr("unfinished"));
  joined.reset();
  EXPECT_EQ(pool_->trim(), 0u) << "the registration's end does not end the transfer";
  ASSERT_TRUE(pool_->allocate(64 * kMiB).ok());
  EXPECT_EQ(engine_.regions.size(), 1u) << "nothing new is registered";
  engine_.deregister_status = Status::kSuccess;
  EXPECT_EQ(pool_->trim(), 4 * kMiB);
  EXPECT_THAT(engine_.regions, IsEmpty());
}

TEST_F(PoolRegistrationTest, AClosedEngineHoldsNothing) {
  auto joined = std::move(PoolRegistration::create(*pool_, engine_.calls())).value();
  ASSERT_TRUE(pool_->free(pool_->allocate(4 * kMiB).value().address).ok());
  engine_.deregister_status = Status::kClosed;
  EXPECT_EQ(pool_->trim(), 4 * kMiB);
}

TEST_F(PoolRegistrationTest, ALaterFailureIsReportedAndTheTensorIsAllocated) {
  auto joined = std::move(PoolRegistration::create(*pool_, engine_.calls())).value();
  engine_.refuse_above = 32 * kMiB;
  EXPECT_TRUE(pool_->allocate(64 * kMiB).ok());
  ASSERT_EQ(joined->failures().size(), 1u);
  EXPECT_THAT(joined->failures()[0].text(), HasSubstr("segment 0x"));
}

}  // namespace
}  // namespace onesided
