// Sends and receives between two ranks, alone or as a batch that makes progress on all of its items at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ascend_sim/hccl/communicator.h"

namespace onesided::sim::hccl {

// A send or a receive. A value.
struct Message {
  bool send = false;
  std::uint32_t peer = 0;
  std::byte* buffer = nullptr;
  std::uint64_t count = 0;
  std::int32_t data_type = 0;
};

// Queues the messages as one piece of work: they are matched with the peers' in the order of issue, and none waits for
// another. A send ends when it was received, or, up to kSendInlineBytes, when the one before it was. 0, or HCCL's code
// with the words as recent error.
Code issue_messages(const std::shared_ptr<Communicator>& group, const std::vector<Message>& messages, void* stream,
                    const char* function);

}  // namespace onesided::sim::hccl
