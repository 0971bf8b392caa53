// Collectives and messages as the vendor's functions.
#include <algorithm>
#include <cstring>

#include "ascend_sim/hccl/api.h"
#include "ascend_sim/hccl/collective.h"
#include "ascend_sim/hccl/element.h"
#include "ascend_sim/hccl/launch_group.h"

namespace onesided::sim::hccl {
namespace {

using Group = std::shared_ptr<Communicator>;

// A request in the making. Confined to one thread.
class Request {
 public:
  Request(const char* function, const Group& group, OpKind kind, std::int32_t data_type)
      : function_(function), group_(group), size_(element_bytes(data_type)) {
    request_.signature.kind = kind;
    request_.signature.data_type = data_type;
    request_.parts.resize(group->ranks());
  }

  Request& count(std::uint64_t count) {
    request_.signature.count = count;
    (void)bytes(count);
    return *this;
  }
  Request& reduction(std::int32_t op) {
    request_.signature.reduce = op;
    reduces_ = true;
    return *this;
  }
  Request& root(std::uint32_t root) {
    request_.signature.root = root;
    root_fits_ = root < group_->ranks();
    return *this;
  }
  // Elements.
  Request& source(const void* address, std::uint64_t count) {
    request_.source = static_cast<const std::byte*>(address);
    request_.source_bytes = bytes(count);
    null_ = null_ || (!address && count != 0);
    return *this;
  }
  Request& part(std::uint32_t peer, std::uint64_t offset, std::uint64_t count) {
    request_.parts[peer] = {bytes(offset), bytes(count)};
    return *this;
  }
  Request& same_part_for_all(std::uint64_t count) {
    for (std::uint32_t peer = 0; peer < group_->ranks(); ++peer) part(peer, 0, count);
    return *this;
  }
  Request& take(std::uint32_t peer, const void* base, std::uint64_t offset, std::uint64_t count) {
    if (request_.takes.empty()) request_.takes.resize(group_->ranks());
    // The vendor's declarations say const where memory is written.
    auto* to = static_cast<std::byte*>(const_cast<void*>(base));  // NOLINT
    request_.takes[peer] = {to + bytes(offset), bytes(count), true};
    null_ = null_ || (!base && count != 0);
    return *this;
  }
  Request& reduced(void* to, std::uint64_t count) {
    request_.reduced = static_cast<std::byte*>(to);
    request_.reduced_bytes = bytes(count);
    null_ = null_ || (!to && count != 0);
    return *this;
  }

  Code issue(void* stream) {
    if (size_ == 0) return refuse(kPara, "{}: there is no data type {}", function_, request_.signature.data_type);
    if (!root_fits_)
      return refuse(kPara, "{}: root {} is not in {}", function_, request_.signature.root, group_->name());
    if (null_) return refuse(kPtr, "{}: null pointer", function_);
    if (too_large_) return refuse(kPara, "{}: a count or offset above {} elements", function_, kMaxElements);
    const std::int32_t op = request_.signature.reduce;
    if (reduces_ && !reducible(request_.signature.data_type, op)) {
      return refuse(kNotSupport, "{}: {} of {} does not exist", function_, reduce_name(op),
                    element_name(request_.signature.data_type));
    }
    LaunchGroup& launch = LaunchGroup::of_this_thread();
    if (launch.open()) return launch.add(group_, std::move(request_), stream, function_);
    return issue_collective(group_, std::move(request_), stream, function_);
  }

 private:
  std::uint64_t bytes(std::uint64_t count) {
    too_large_ = too_large_ || count > kMaxElements;
    return too_large_ ? 0 : count * size_;
  }

  const char* function_;
  const Group& group_;
  const std::uint64_t size_;
  CollectiveRequest request_;
  bool reduces_ = false;
  bool root_fits_ = true;
  bool null_ = false;
  bool too_large_ = false;
};

std::uint64_t number_at(const void* numbers, std::uint32_t at) {
  return static_cast<const std::uint64_t*>(numbers)[at];
}

// How far parts at these places reach: what of the source others may read.
std::uint64_t extent(const void* counts, const void* offsets, std::uint32_t ranks) {
  std::uint64_t end = 0;
  for (std::uint32_t peer = 0; peer < ranks; ++peer) {
    if (number_at(counts, peer) != 0) end = std::max(end, number_at(offsets, peer) + number_at(counts, peer));
  }
  return end;
}

Code message(const char* function, const Group& group, Message one, void* stream) {
  if (!one.buffer && one.count != 0) return refuse(kPtr, "{}: null pointer", function);
  LaunchGroup& launch = LaunchGroup::of_this_thread();
  if (launch.open()) return launch.add(group, {one}, stream, function);
  return issue_messages(group, {one}, stream, function);
}

}  // namespace
}  // namespace onesided::sim::hccl

using namespace onesided::sim::hccl;  // NOLINT: this file is the C face of the namespace

ONESIDED_HCCL_EXPORT std::int32_t HcclAllReduce(void* send, void* receive, std::uint64_t count, std::int32_t type,
                                                std::int32_t op, void* comm, void* stream) {
  return group_api("HcclAllReduce", comm, [&](const auto& group) {
    return Request("HcclAllReduce", group, OpKind::kAllReduce, type)
        .count(count)
        .reduction(op)
        .source(send, count)
        .same_part_for_all(count)
        .reduced(receive, count)
        .issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclReduce(void* send, void* receive, std::uint64_t count, std::int32_t type,
                                             std::int32_t op, std::uint32_t root, void* comm, void* stream) {
  return group_api("HcclReduce", comm, [&](const auto& group) {
    Request request("HcclReduce", group, OpKind::kReduce, type);
    request.count(count).reduction(op).root(root).source(send, count);
    if (root < group->ranks()) request.part(root, 0, count);
    if (root == group->rank()) request.reduced(receive, count);
    return request.issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclReduceScatter(void* send, void* receive, std::uint64_t count, std::int32_t type,
                                                    std::int32_t op, void* comm, void* stream) {
  return group_api("HcclReduceScatter", comm, [&](const auto& group) {
    Request request("HcclReduceScatter", group, OpKind::kReduceScatter, type);
    request.count(count).reduction(op).source(send, count * group->ranks()).reduced(receive, count);
    for (std::uint32_t peer = 0; peer < group->ranks(); ++peer) request.part(peer, peer * count, count);
    return request.issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclReduceScatterV(void* send, const void* counts, const void* offsets, void* receive,
                                                     std::uint64_t count, std::int32_t type, std::int32_t op,
                                                     void* comm, void* stream) {
  return group_api("HcclReduceScatterV", comm, [&](const auto& group) {
    if (!counts || !offsets) return refuse(kPtr, "HcclReduceScatterV: null pointer");
    Request request("HcclReduceScatterV", group, OpKind::kReduceScatter, type);
    request.reduction(op).source(send, extent(counts, offsets, group->ranks())).reduced(receive, count);
    for (std::uint32_t peer = 0; peer < group->ranks(); ++peer)
      request.part(peer, number_at(offsets, peer), number_at(counts, peer));
    return request.issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclBroadcast(void* buffer, std::uint64_t count, std::int32_t type,
                                                std::uint32_t root, void* comm, void* stream) {
  return group_api("HcclBroadcast", comm, [&](const auto& group) {
    Request request("HcclBroadcast", group, OpKind::kBroadcast, type);
    request.count(count).root(root);
    if (root == group->rank()) {
      request.source(buffer, count).same_part_for_all(count);
    } else if (root < group->ranks()) {
      request.take(root, buffer, 0, count);
    }
    return request.issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclScatter(void* send, void* receive, std::uint64_t count, std::int32_t type,
                                              std::uint32_t root, void* comm, void* stream) {
  return group_api("HcclScatter", comm, [&](const auto& group) {
    Request request("HcclScatter", group, OpKind::kScatter, type);
    request.count(count).root(root);
    if (root == group->rank()) {
      request.source(send, count * group->ranks());
      for (std::uint32_t peer = 0; peer < group->ranks(); ++peer) request.part(peer, peer * count, count);
    }
    if (root < group->ranks()) request.take(root, receive, 0, count);
    return request.issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclAllGather(void* send, void* receive, std::uint64_t count, std::int32_t type,
                                                void* comm, void* stream) {
  return group_api("HcclAllGather", comm, [&](const auto& group) {
    Request request("HcclAllGather", group, OpKind::kAllGather, type);
    request.count(count).source(send, count).same_part_for_all(count);
    for (std::uint32_t peer = 0; peer < group->ranks(); ++peer) request.take(peer, receive, peer * count, count);
    return request.issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclAllGatherV(void* send, std::uint64_t count, void* receive, const void* counts,
                                                 const void* offsets, std::int32_t type, void* comm, void* stream) {
  return group_api("HcclAllGatherV", comm, [&](const auto& group) {
    if (!counts || !offsets) return refuse(kPtr, "HcclAllGatherV: null pointer");
    Request request("HcclAllGatherV", group, OpKind::kAllGather, type);
    request.source(send, count).same_part_for_all(count);
    for (std::uint32_t peer = 0; peer < group->ranks(); ++peer)
      request.take(peer, receive, number_at(offsets, peer), number_at(counts, peer));
    return request.issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclAlltoAll(const void* send, std::uint64_t send_count, std::int32_t send_type,
                                               const void* receive, std::uint64_t receive_count,
                                               std::int32_t receive_type, void* comm, void* stream) {
  return group_api("HcclAlltoAll", comm, [&](const auto& group) {
    if (send_type != receive_type || send_count != receive_count)
      return refuse(kPara, "HcclAlltoAll: what is sent and what is received differ in type or count");
    Request request("HcclAlltoAll", group, OpKind::kAllToAll, send_type);
    request.count(send_count).source(send, send_count * group->ranks());
    for (std::uint32_t peer = 0; peer < group->ranks(); ++peer) {
      request.part(peer, peer * send_count, send_count).take(peer, receive, peer * send_count, send_count);
    }
    return request.issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclAlltoAllV(const void* send, const void* send_counts, const void* send_offsets,
                                                std::int32_t send_type, const void* receive, const void* receive_counts,
                                                const void* receive_offsets, std::int32_t receive_type, void* comm,
                                                void* stream) {
  return group_api("HcclAlltoAllV", comm, [&](const auto& group) {
    if (!send_counts || !send_offsets || !receive_counts || !receive_offsets)
      return refuse(kPtr, "HcclAlltoAllV: null pointer");
    if (send_type != receive_type) return refuse(kPara, "HcclAlltoAllV: the types sent and received differ");
    Request request("HcclAlltoAllV", group, OpKind::kAllToAll, send_type);
    request.source(send, extent(send_counts, send_offsets, group->ranks()));
    for (std::uint32_t peer = 0; peer < group->ranks(); ++peer) {
      request.part(peer, number_at(send_offsets, peer), number_at(send_counts, peer))
          .take(peer, receive, number_at(receive_offsets, peer), number_at(receive_counts, peer));
    }
    return request.issue(stream);
  });
}

// counts[from * ranks + to]; the parts of each rank lie one after the other.
ONESIDED_HCCL_EXPORT std::int32_t HcclAlltoAllVC(const void* send, const void* counts, std::int32_t send_type,
                                                 const void* receive, std::int32_t receive_type, void* comm,
                                                 void* stream) {
  return group_api("HcclAlltoAllVC", comm, [&](const auto& group) {
    if (!counts) return refuse(kPtr, "HcclAlltoAllVC: null pointer");
    if (send_type != receive_type) return refuse(kPara, "HcclAlltoAllVC: the types sent and received differ");
    const std::uint32_t ranks = group->ranks(), rank = group->rank();
    Request request("HcclAlltoAllVC", group, OpKind::kAllToAll, send_type);
    std::uint64_t sent = 0, received = 0;
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      request.part(peer, sent, number_at(counts, rank * ranks + peer));
      request.take(peer, receive, received, number_at(counts, peer * ranks + rank));
      sent += number_at(counts, rank * ranks + peer);
      received += number_at(counts, peer * ranks + rank);
    }
    return request.source(send, sent).issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclBarrier(void* comm, void* stream) {
  return group_api("HcclBarrier", comm, [&](const auto& group) {
    return Request("HcclBarrier", group, OpKind::kBarrier, static_cast<std::int32_t>(DataType::kInt8)).issue(stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclSend(void* buffer, std::uint64_t count, std::int32_t type, std::uint32_t peer,
                                           void* comm, void* stream) {
  return group_api("HcclSend", comm, [&](const auto& group) {
    return message("HcclSend", group, {true, peer, static_cast<std::byte*>(buffer), count, type}, stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclRecv(void* buffer, std::uint64_t count, std::int32_t type, std::uint32_t peer,
                                           void* comm, void* stream) {
  return group_api("HcclRecv", comm, [&](const auto& group) {
    return message("HcclRecv", group, {false, peer, static_cast<std::byte*>(buffer), count, type}, stream);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclBatchSendRecv(SendRecvItem* items, std::uint32_t count, void* comm,
                                                    void* stream) {
  constexpr const char* kName = "HcclBatchSendRecv";
  return group_api(kName, comm, [&](const auto& group) {
    if (!items) return refuse(kPtr, "{}: null pointer", kName);
    std::vector<Message> messages;
    for (std::uint32_t at = 0; at < count; ++at) {
      const SendRecvItem& item = items[at];
      if (item.type != 0 && item.type != 1) return refuse(kPara, "{}: item {} is neither send nor receive", kName, at);
      if (!item.buffer && item.count != 0) return refuse(kPtr, "{}: item {} has no buffer", kName, at);
      messages.push_back(
          {item.type == 0, item.remote_rank, static_cast<std::byte*>(item.buffer), item.count, item.data_type});
    }
    LaunchGroup& launch = LaunchGroup::of_this_thread();
    if (launch.open()) return launch.add(group, messages, stream, kName);
    return issue_messages(group, messages, stream, kName);
  });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclGroupStart() {
  return api("HcclGroupStart", [&] { return LaunchGroup::of_this_thread().start(); });
}

ONESIDED_HCCL_EXPORT std::int32_t HcclGroupEnd() {
  return api("HcclGroupEnd", [&] { return LaunchGroup::of_this_thread().end(); });
}
