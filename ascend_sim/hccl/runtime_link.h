// The runtime's own libascendcl.so, as collectives see it: device memory that stays while it is used, and work on
// streams.
#pragma once

#include <memory>
#include <vector>

#include "ascend_sim/hccl/rank_page.h"
#include "onesided/base/result.h"

namespace onesided::sim::hccl {

// Keeps ranges of device memory mapped. A value that moves.
class MemoryHold {
 public:
  // PARAM_INVALID: not device memory from end to end. 0 bytes hold nothing.
  Result<void> add(const char* what, const void* address, std::uint64_t nbytes);

 private:
  std::vector<std::shared_ptr<void>> holds_;
};

// Where [address, address + nbytes) lies, for other processes. The range has been held.
BufferRef locate(const void* address, std::uint64_t nbytes);

// Whether the stream was aborted while its work runs. A value; good while the work runs.
class StopProbe {
 public:
  StopProbe(int (*aborted)(void*), void* token) : aborted_(aborted), token_(token) {}
  bool stopped() const { return aborted_(token_) != 0; }

 private:
  int (*aborted_)(void*);
  void* token_;
};

// A piece of work for a stream. Destroyed after it ran, or when the stream drops it.
class StreamWork {
 public:
  virtual ~StreamWork() = default;
  virtual Result<void> run(const StopProbe& stop) = 0;
  // No stream accepted it: it is destroyed and not waited for.
  virtual void refused() {}
};
// Queues the work; false: the stream is unusable, the reason is the thread's recent error.
bool enqueue(void* stream, std::unique_ptr<StreamWork> work);

}  // namespace onesided::sim::hccl
