// With a buffer pool the vendor's engine moves host memory that was never registered, through buffers that were.
// The asking side owns the buffer; the side that has the other memory copies between it and its own buffer by one-sided
// transfers of our engine. What a program names as memory and is none gives an error, not a fault.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "control.h"
#include "conversations.h"
#include "onesided/base/mutex.h"
#include "onesided/engine/engine.h"
#include "span_split.h"
#include "vendor_engine.h"

namespace onesided::hixl_abi {

// Registered buffers of one size, made at first use. Internally synchronized. `engine` outlives it.
class StagingBuffers {
 public:
  StagingBuffers(Engine& engine, std::uint32_t count, std::uint64_t nbytes)
      : engine_(engine), count_(count), nbytes_(nbytes) {}
  // Must be called when no buffer is in use; the engine is closed.
  ~StagingBuffers();

  // The address of a buffer that is now the caller's. Waits for one. TIMEOUT, RESOURCE_EXHAUSTED.
  Result<std::uint64_t> take(Deadline deadline);
  void give_back(std::uint64_t buffer);
  // In place of give_back(), when a peer may still move bytes in or out: nothing does once this returns, and the buffer
  // is gone.
  void discard(std::uint64_t buffer);

  std::uint64_t nbytes() const { return nbytes_; }
  bool any() const { return count_ > 0; }

 private:
  Result<std::uint64_t> make();

  Engine& engine_;
  const std::uint32_t count_;
  const std::uint64_t nbytes_;
  Mutex mutex_;
  CondVar changed_;
  std::uint32_t made_ ONESIDED_GUARDED_BY(mutex_) = 0;
  std::vector<std::uint64_t> free_ ONESIDED_GUARDED_BY(mutex_);
  std::map<std::uint64_t, MemHandle> handles_ ONESIDED_GUARDED_BY(mutex_);
};

// Copies within this process; FAILED, not a fault, when either range is not mapped as needed.
Result<void> copy_checked(std::uint64_t to, std::uint64_t from, std::uint64_t nbytes);

// Asking side: moves all items through the remote's staging. Blocks.
Result<void> stage_transfer(StagingBuffers& buffers, Conversations& conversations, const std::string& remote,
                            Direction direction, std::span<const Item> items, Deadline deadline);
// Answering side. Blocks.
StageReply stage_answer(Engine& engine, StagingBuffers& buffers, const StageRequest& request);

}  // namespace onesided::hixl_abi
