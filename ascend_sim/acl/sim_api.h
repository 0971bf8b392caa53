// What programs of this project ask of the simulator beyond the vendor's API: to find the file behind device
// memory (for other processes to map) and to look at the counters. Exported by libascendcl.so, found with dlsym; a real
// libascendcl.so does not have these, which is how a program tells the two apart.
#pragma once

#include <cstdint>

extern "C" {

// The mapping (allocation or mapped piece) that holds `address` in this process. 0: found, and all four answers are
// filled: fd is BORROWED (duplicate it before the memory can be freed; it is never shrunk), file_offset belongs to
// base. Otherwise an ACL error: unknown memory, or registered host memory, which has no file.
int onesided_sim_export(const void* address, int* fd, std::uint64_t* file_offset, std::uint64_t* base,
                        std::uint64_t* nbytes);

struct onesided_sim_device_stats {
  std::uint64_t mallocs;  // aclrtMalloc*, aclrtMallocPhysical of this process
  std::uint64_t frees;
  std::uint64_t used_bytes;  // of this process
  std::uint64_t peak_bytes;
  std::uint64_t capacity_bytes;
  std::uint64_t machine_used_bytes;  // over all processes
};
// 0, or an ACL error for a device that does not exist.
int onesided_sim_stats(std::int32_t device, onesided_sim_device_stats* stats);

}  // extern "C"
