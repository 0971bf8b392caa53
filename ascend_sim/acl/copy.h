// A copy's pointers are checked when it is asked for, and its memory is kept until it is done.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ascend_sim/acl/abi.h"
#include "ascend_sim/acl/memory.h"
#include "ascend_sim/acl/stream.h"

namespace onesided::sim {

// A checked copy. A value that can wait in a queue.
struct CopyPlan {
  void* to = nullptr;
  const void* from = nullptr;
  std::uint64_t nbytes = 0;
  std::vector<MappingPtr> held;                    // what must stay mapped until the copy is done
  std::shared_ptr<std::vector<std::byte>> staged;  // the source's bytes, when the program may change them at once
  bool from_plain_host = false;                    // the source is host memory the runtime knows nothing of

  void run() const;
};

// Checks that both ranges are what `kind` says and lie inside memory that exists. kAclOk fills the plan.
AclError plan_copy(const char* function, void* to, std::uint64_t capacity, const void* from, std::uint64_t nbytes,
                   MemcpyKind kind, CopyPlan* plan);

// Checks a range of device (or registered host) memory that work will touch; appends what must stay mapped.
AclError hold_range(const char* function, const void* address, std::uint64_t nbytes, std::vector<MappingPtr>* held);

// Queues a checked copy.
AclError queue_copy(Stream& stream, CopyPlan plan);

}  // namespace onesided::sim
