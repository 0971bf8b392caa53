// The message by which a rank on another host learns of a change.
#pragma once

#include "ascend_sim/hccl/communicator.h"

namespace onesided::sim::hccl {

// The head of a message; an operation's record, parts and data may follow. A value of plain words: both ends are this
// very library.
struct Communicator::Update {
  enum Kind : std::uint32_t { kPing, kPublished, kProgress, kFinished, kSent, kReceived, kState, kFailure };
  std::uint32_t kind;
  std::uint32_t rank;    // of the sender
  std::uint64_t number;  // of the operation; or the new state or failure
  std::uint64_t value;
};

}  // namespace onesided::sim::hccl
