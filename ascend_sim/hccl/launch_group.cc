#include "ascend_sim/hccl/launch_group.h"

#include <algorithm>

#include "ascend_sim/hccl/api.h"

namespace onesided::sim::hccl {

LaunchGroup& LaunchGroup::of_this_thread() {
  thread_local LaunchGroup group;
  return group;
}

Code LaunchGroup::start() {
  ++depth_;
  return kSuccess;
}

Code LaunchGroup::add(const std::shared_ptr<Communicator>& group, CollectiveRequest request, void* stream,
                      const char* function) {
  entries_.push_back({group, stream, function, {}, std::move(request)});
  return kSuccess;
}

Code LaunchGroup::add(const std::shared_ptr<Communicator>& group, const std::vector<Message>& messages, void* stream,
                      const char* function) {
  const auto same = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.group == group && entry.stream == stream && !entry.messages.empty();
  });
  if (same != entries_.end()) {
    same->messages.insert(same->messages.end(), messages.begin(), messages.end());
  } else if (!messages.empty()) {
    entries_.push_back({group, stream, function, messages, {}});
  }
  return kSuccess;
}

Code LaunchGroup::end() {
  if (depth_ == 0) return refuse(kPara, "HcclGroupEnd: no group was started on this thread");
  if (--depth_ > 0) return kSuccess;
  const std::vector<Entry> entries = std::move(entries_);
  entries_.clear();
  Code first = kSuccess;
  for (const Entry& entry : entries) {
    const Code code = entry.messages.empty()
                          ? issue_collective(entry.group, entry.request, entry.stream, entry.function)
                          : issue_messages(entry.group, entry.messages, entry.stream, entry.function);
    if (first == kSuccess) first = code;
  }
  return first;
}

}  // namespace onesided::sim::hccl
