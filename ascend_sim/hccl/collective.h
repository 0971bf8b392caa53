// Operations of a whole communicator, as work on a stream. Each rank shows where its data lies; each takes what it
// needs from the others' memory; an operation whose data is not on the page ends when all have taken it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ascend_sim/hccl/communicator.h"
#include "ascend_sim/hccl/peer_data.h"

namespace onesided::sim::hccl {

// What this rank takes from one other. A value.
struct Take {
  std::byte* to = nullptr;
  std::uint64_t nbytes = 0;
  bool wanted = false;  // false: nothing is expected of that rank, and its part is not looked at
};

// A collective as this rank sees it. A value that moves.
struct CollectiveRequest {
  Signature signature;
  const std::byte* source = nullptr;
  std::uint64_t source_bytes = 0;
  std::vector<Part> parts;  // of the source, by who takes them
  // By rank: for operations that only move data. Empty where this rank receives nothing.
  std::vector<Take> takes;
  // For reductions: where the reduced data goes; null where this rank gets none.
  std::byte* reduced = nullptr;
  std::uint64_t reduced_bytes = 0;
};

// Checks what can be checked at once and queues the operation. 0, or HCCL's code with the words as recent error.
Code issue_collective(const std::shared_ptr<Communicator>& group, CollectiveRequest request, void* stream,
                      const char* function);

// The algorithms, apart from streams: runs operation `op` of the group now. Called in the order of `op`, by any thread.
Result<void> run_collective(Communicator& group, std::uint64_t op, const CollectiveRequest& request,
                            const Patience& patience);

}  // namespace onesided::sim::hccl
