// What the simulated machine looks like is decided by the environment, so that children and Ray workers see the
// same machine. Read once; a value that cannot be understood makes every call fail with the reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ascend_sim/faults/fault_plan.h"
#include "onesided/base/result.h"

namespace onesided::sim {

inline constexpr int kMaxDevices = 64;

// A value.
struct Config {
  std::string machine;          // ONESIDED_SIM_MACHINE, default "default": who shares devices and memory with whom
  int machine_devices = 2;      // ONESIDED_SIM_DEVICES
  std::vector<int> visible;     // logical -> physical, after ASCEND_RT_VISIBLE_DEVICES
  std::uint64_t hbm_bytes = 0;  // of each device: ONESIDED_SIM_HBM, default 8 GiB
  FaultPlan faults;             // ONESIDED_SIM_FAULTS
  std::string soc_name;         // ONESIDED_SIM_SOC, default Ascend910B3

  // Reads the environment of this process.
  static Result<Config> from_environment();
  // The one read at first use. Lives for ever.
  static const Result<Config>& active();
};

// "0,2": physical devices in the order a program sees them. As the vendor's runtime: what follows the first entry that
// is not a device of the machine is ignored; an empty list hides every device.
std::vector<int> parse_visible_devices(std::string_view text, int machine_devices);

}  // namespace onesided::sim
