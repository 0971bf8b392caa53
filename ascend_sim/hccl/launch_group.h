// Between HcclGroupStart and HcclGroupEnd operations are only collected. At the end messages of one communicator and
// stream become one batch, so that sends and receives in any order cannot wait for each other for ever.
#pragma once

#include <memory>
#include <vector>

#include "ascend_sim/hccl/collective.h"
#include "ascend_sim/hccl/point_to_point.h"

namespace onesided::sim::hccl {

// What a thread collects. Confined to its thread. Groups nest; the outermost one issues.
class LaunchGroup {
 public:
  static LaunchGroup& of_this_thread();

  bool open() const { return depth_ > 0; }
  Code start();
  // The first code that is not 0; all operations are issued in any case, so that the ranks stay in step.
  Code end();
  Code add(const std::shared_ptr<Communicator>& group, CollectiveRequest request, void* stream, const char* function);
  Code add(const std::shared_ptr<Communicator>& group, const std::vector<Message>& messages, void* stream,
           const char* function);

 private:
  struct Entry {
    std::shared_ptr<Communicator> group;
    void* stream = nullptr;
    const char* function = nullptr;
    std::vector<Message> messages;  // or else
    CollectiveRequest request;
  };
  int depth_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace onesided::sim::hccl
