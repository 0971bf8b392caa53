// What code of this project asks of the simulator beyond the vendor's API: to find the file behind device memory (for
// other processes to map), to look at the counters, and to put work of its own on a stream (collectives). Exported by
// libascendcl.so, found with dlsym; a real libascendcl.so does not have these, which is how a program tells the two
// apart.
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

// Work for a stream. run() gets `state` and a way to ask whether the stream was aborted meanwhile (`aborted(token)` is
// not 0): work that waits asks now and then. What run() returns, if not 0, stops the device, with the words of
// onesided_sim_fail. release() is called exactly once, after run() or instead of it.
struct onesided_sim_work {
  int (*run)(void* state, int (*aborted)(void* token), void* token);
  void (*release)(void* state);
  void* state;
};
// Queues the work on a stream (null: the current device's default stream). Not 0: nothing was queued, and release() is
// not called.
int onesided_sim_enqueue(void* stream, const onesided_sim_work* work);

// Keeps device memory mapped, also when it is freed meanwhile, until onesided_sim_release. 0, or an ACL error when
// [address, address + nbytes) is not device memory from end to end.
int onesided_sim_hold(const void* address, std::uint64_t nbytes, void** hold);
void onesided_sim_release(void* hold);

// Enters the runtime as one of its functions does (trace, faults, fork rule) and runs body(context) inside. A refusal
// is returned without running it.
int onesided_sim_call(const char* function, int (*body)(void* context), void* context);
// This process, safe against reuse of its id; and whether a process of this machine still runs (1) or not (0).
void onesided_sim_self(std::int32_t* pid, std::uint64_t* start_time);
int onesided_sim_alive(std::int32_t pid, std::uint64_t start_time);

// Remembers the words for aclGetRecentErrMsg and returns `code`.
int onesided_sim_fail(int code, const char* text);

}  // extern "C"
