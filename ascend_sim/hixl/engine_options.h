// The options of Initialize() are strings that programs write by hand. One place says which there are, what their
// values may be, and refuses the rest by name instead of ignoring it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "onesided/base/result.h"

namespace onesided::hixl_abi {

// Initialize()'s options, understood. A value.
//   name (an "adxl." or "hixl." before it is accepted)   value                        default
//   AutoConnect           "0" | "1": a transfer to an unconnected peer connects         0
//   BufferPool            "<count>:<MiB each>", "0:0" for none: staging of host         4:8
//                         memory that was not registered
//   RdmaTrafficClass      0..255, a multiple of 4                                       132
//   RdmaServiceLevel      0..7                                                          4
//   LocalCommRes          a JSON object, or ""                                          ""
//   GlobalResourceConfig  a flat JSON object; of its keys the simulator uses            {}
//                         connect_pool.thread_num (1..64) and
//                         connect_pool.task_queue_capacity (1..65536)
//   EnableUseFabricMem    "0"; "1" is UNSUPPORTED: there is no fabric here              0
// The RDMA values and LocalCommRes name hardware that the simulator does not have; they are checked and kept, and
// change nothing.
struct EngineOptions {
  bool auto_connect = false;
  std::uint32_t staging_buffers = 4;
  std::uint64_t staging_buffer_bytes = 8ULL << 20;
  std::uint32_t rdma_traffic_class = 132;
  std::uint32_t rdma_service_level = 4;
  std::string local_comm_res;
  std::uint32_t connect_threads = 2;
  std::uint32_t connect_queue_capacity = 256;

  // PARAM_INVALID or UNSUPPORTED, naming the option, its value and what is allowed.
  static Result<EngineOptions> parse(const std::map<std::string, std::string>& options);
};

}  // namespace onesided::hixl_abi
