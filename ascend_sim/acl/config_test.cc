#include "ascend_sim/acl/config.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "ascend_sim/acl/sizes.h"
#include "ascend_sim/faults/faults.h"

namespace onesided::sim {
namespace {

TEST(Sizes, AreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("4096").value(), 4096u);
  EXPECT_EQ(parse_bytes("8GiB").value(), 8ull << 30);
  EXPECT_EQ(parse_bytes("512M").value(), 512ull << 20);
  EXPECT_EQ(parse_bytes("3KB").value(), 3072u);
  for (const char* bad : {"", "GiB", "0", "-1", "1.5G", "8 GiB", "99999999999999999999", "99999999999T", "1X"}) {
    EXPECT_EQ(parse_bytes(bad).status(), Status::kParamInvalid) << bad;
  }
}

TEST(VisibleDevices, StopAtTheFirstThatIsNone) {
  EXPECT_EQ(parse_visible_devices("1,0", 2), (std::vector<int>{1, 0}));
  EXPECT_EQ(parse_visible_devices(" 1 ", 2), (std::vector<int>{1}));
  EXPECT_EQ(parse_visible_devices("0,7,1", 2), (std::vector<int>{0}));
  EXPECT_EQ(parse_visible_devices("0,0", 2), (std::vector<int>{0}));
  EXPECT_EQ(parse_visible_devices("", 2), std::vector<int>{});
  EXPECT_EQ(parse_visible_devices("x", 2), std::vector<int>{});
}

TEST(Config, NamesTheVariableThatItCannotRead) {
  ::setenv("ONESIDED_SIM_DEVICES", "many", 1);
  EXPECT_NE(Config::from_environment().error().text().find("ONESIDED_SIM_DEVICES"), std::string::npos);
  ::setenv("ONESIDED_SIM_DEVICES", "3", 1);
  ::setenv("ONESIDED_SIM_HBM", "lots", 1);
  EXPECT_NE(Config::from_environment().error().text().find("ONESIDED_SIM_HBM"), std::string::npos);
  ::setenv("ONESIDED_SIM_HBM", "1GiB", 1);
  ::setenv("ONESIDED_SIM_FAULTS", "explode=always", 1);
  EXPECT_NE(Config::from_environment().error().text().find("explode=always"), std::string::npos);
  ::unsetenv("ONESIDED_SIM_FAULTS");
  ::setenv("ONESIDED_SIM_MACHINE", "a/b", 1);
  EXPECT_NE(Config::from_environment().error().text().find("ONESIDED_SIM_MACHINE"), std::string::npos);
  ::unsetenv("ONESIDED_SIM_MACHINE");
  ::setenv("ASCEND_RT_VISIBLE_DEVICES", "2,1", 1);
  const Config config = Config::from_environment().value();
  EXPECT_EQ(config.machine_devices, 3);
  EXPECT_EQ(config.hbm_bytes, 1ull << 30);
  EXPECT_EQ(config.visible, (std::vector<int>{2, 1}));
  for (const char* name : {"ONESIDED_SIM_DEVICES", "ONESIDED_SIM_HBM", "ASCEND_RT_VISIBLE_DEVICES"}) ::unsetenv(name);
}

TEST(FaultPlan, RefusesWhatItDoesNotKnow) {
  for (const char* bad : {"x", "fail=", "fail=@", "fail=f@0", "fail=1in0", "delay=1in3", "delay=1in3:0", "lose=2",
                          "cap=0", "seed=", "fail=aclrtMalloc@1:0", "seed=1,,fail=1in3", "misalign=@"}) {
    EXPECT_EQ(FaultPlan::parse(bad).status(), Status::kParamInvalid) << bad;
  }
  EXPECT_TRUE(FaultPlan::parse("").value().empty());
  EXPECT_FALSE(FaultPlan::parse("7").value().empty());
}

TEST(Faults, FailTheCallThatIsAskedFor) {
  Faults faults(FaultPlan::parse("fail=aclrtMalloc@2,fail=aclrtSetDevice@1:107001").value());
  EXPECT_EQ(faults.refusal("aclrtMalloc"), kAclOk);
  EXPECT_EQ(faults.refusal("aclrtMalloc"), kRtMemoryAllocation);
  EXPECT_EQ(faults.refusal("aclrtMalloc"), kAclOk);
  EXPECT_EQ(faults.refusal("aclrtSetDevice"), 107001);
}

// What happens depends on the seed and on nothing else: each function's own calls, not the order among functions.
TEST(Faults, AreTheSameForTheSameSeed) {
  const auto trace = [](std::uint64_t seed, bool interleaved) {
    Faults faults(FaultPlan::parse("seed=" + std::to_string(seed) + ",fail=1in10,misalign=1in3,lose=1in5").value());
    std::vector<std::uint64_t> seen;
    for (int i = 0; i < 200; ++i) {
      if (interleaved) (void)faults.refusal("aclrtMemcpy");
      seen.push_back(static_cast<std::uint64_t>(faults.refusal("aclrtMalloc")));
      seen.push_back(faults.misalignment());
      seen.push_back(faults.lose_completion());
    }
    return seen;
  };
  EXPECT_EQ(trace(7, false), trace(7, true));
  EXPECT_NE(trace(7, false), trace(8, false));
}

TEST(Faults, LeaveAloneWhatCannotFail) {
  Faults faults(FaultPlan::parse("fail=1in1").value());
  EXPECT_EQ(faults.refusal("aclrtGetDevice"), kAclOk);
  EXPECT_NE(faults.refusal("aclrtMalloc"), kAclOk);
}

}  // namespace
}  // namespace onesided::sim
