#include "ascend_sim/hccl/point_to_point.h"

#include <fmt/format.h>

#include "ascend_sim/acl/sim_api.h"
#include "ascend_sim/hccl/element.h"
#include "ascend_sim/hccl/peer_data.h"

namespace onesided::sim::hccl {
namespace {

// While several peers are waited for, the work sleeps on one of them, for no longer than this.
constexpr std::int64_t kSeveralPeersTickMs = 1;

// Messages on their stream.
class MessageWork : public StreamWork {
 public:
  struct Item {
    Message message;
    std::uint64_t number = 0;  // of the messages in this direction between the two ranks
    enum class State { kWaiting, kShown, kDone } state = State::kWaiting;
    std::shared_ptr<void> offered;
  };

  MessageWork(std::shared_ptr<Communicator> group, std::vector<Item> items, MemoryHold hold)
      : group_(std::move(group)), items_(std::move(items)), hold_(std::move(hold)) {
    group_->entered();
  }
  ~MessageWork() override {
    if (!settled_) group_->fail(Error(Status::kCancelled, "the stream dropped messages before they were sent"));
    group_->left();
  }
  void refused() override { settled_ = true; }

  Result<void> run(const StopProbe& stop) override {
    settled_ = true;
    Result<void> ended = run_all({group_->op_deadline(), stop});
    if (!ended.ok()) group_->fail(ended.error());
    return ended;
  }

 private:
  Result<void> run_all(const Patience& patience) {
    while (true) {
      bool progressed = false;
      Item* open = nullptr;
      bool several_peers = false;
      for (Item& item : items_) {
        if (item.state == Item::State::kDone) continue;
        ONESIDED_TRY_ASSIGN(moved, item.message.send ? step_send(item, patience) : step_receive(item, patience));
        progressed = progressed || moved;
        if (item.state == Item::State::kDone) continue;
        several_peers = several_peers || (open && open->message.peer != item.message.peer);
        if (!open) open = &item;
      }
      if (!open) return {};
      if (progressed) continue;
      ONESIDED_TRY(wait(*open, patience, several_peers));
    }
  }

  Result<void> wait(const Item& item, const Patience& patience, bool several_peers) {
    // A message before this one may be another stream's work on this rank: that shows on the own page.
    const bool turn = item.message.send ? sent_before(item) : received_before(item);
    const std::uint32_t peer = turn ? item.message.peer : group_->rank();
    return group_->wait(peer, patience, [&] { return ready(item); }, several_peers || !turn ? kSeveralPeersTickMs : -1);
  }

  bool sent_before(const Item& item) const {
    return group_->own().pair(item.message.peer).sent.load(std::memory_order_acquire) + 1 >= item.number;
  }
  bool received_before(const Item& item) const {
    return group_->own().pair(item.message.peer).received.load(std::memory_order_acquire) + 1 >= item.number;
  }
  const PairHead& theirs(const Item& item) const { return group_->page(item.message.peer).pair(group_->rank()); }

  bool ready(const Item& item) const {
    if (!item.message.send)
      return received_before(item) && theirs(item).sent.load(std::memory_order_acquire) >= item.number;
    const std::uint64_t received = theirs(item).received.load(std::memory_order_acquire);
    if (item.state == Item::State::kShown) return received >= item.number;
    return sent_before(item) && received + 1 >= item.number;
  }

  // True: something happened.
  Result<bool> step_send(Item& item, const Patience& patience) {
    if (!ready(item)) return false;
    const std::uint32_t peer = item.message.peer;
    if (item.state == Item::State::kShown) {
      item.state = Item::State::kDone;
      item.offered.reset();
      if (theirs(item).refused.load(std::memory_order_relaxed) == 0) return true;
      return Error(
          Status::kParamInvalid,
          fmt::format("message {} to rank {} of {}: {} x {} was sent, another message is expected there", item.number,
                      peer, group_->name(), item.message.count, element_name(item.message.data_type)));
    }
    OpRecord record;
    record.signature = {OpKind::kSend, item.message.data_type, 0, 0, item.message.count};
    const std::uint64_t nbytes = item.message.count * element_bytes(item.message.data_type);
    if (nbytes <= kSendInlineBytes) {
      record.source.on_page = 1;
      record.source.nbytes = nbytes;
    } else {
      record.source = locate(item.message.buffer, nbytes);
      if (!group_->in_this_process(peer) && !(group_->on_this_host(peer) && record.source.file >= 0)) {
        ONESIDED_TRY_ASSIGN(kept,
                            Registrations::of(group_->board()).keep(item.message.buffer, nbytes, patience.deadline));
        item.offered = std::move(kept);
      }
    }
    group_->send(peer, item.number, record, item.message.buffer);
    item.state = record.source.on_page != 0 ? Item::State::kDone : Item::State::kShown;
    return true;
  }

  Result<bool> step_receive(Item& item, const Patience& patience) {
    if (!ready(item)) return false;
    const std::uint32_t peer = item.message.peer;
    const OpRecord& record = theirs(item).record;
    const std::uint64_t nbytes = item.message.count * element_bytes(item.message.data_type);
    // As with every vendor's library, what matters is the number of bytes of the type.
    if (record.signature.data_type != item.message.data_type || record.signature.count != item.message.count) {
      const std::string words = fmt::format(
          "message {} from rank {} to rank {} of {}: {} x {} was sent, {} x {} is expected", item.number, peer,
          group_->rank(), group_->name(), record.signature.count, element_name(record.signature.data_type),
          item.message.count, element_name(item.message.data_type));
      group_->received(peer, item.number, true);
      return Error(Status::kParamInvalid, words);
    }
    ONESIDED_TRY_ASSIGN(data, PeerData::open(*group_, peer, record.source,
                                             group_->page(peer).pair_payload(group_->rank()), patience.deadline));
    ONESIDED_TRY(data.copy_to(item.message.buffer, 0, nbytes));
    group_->received(peer, item.number, false);
    item.state = Item::State::kDone;
    return true;
  }

  const std::shared_ptr<Communicator> group_;
  std::vector<Item> items_;
  const MemoryHold hold_;
  bool settled_ = false;  // it ran, or no stream took it
};

}  // namespace

Code issue_messages(const std::shared_ptr<Communicator>& group, const std::vector<Message>& messages, void* stream,
                    const char* function) {
  const auto refuse = [&](Code code, const std::string& words) {
    onesided_sim_fail(code, fmt::format("{}: {}", function, words).c_str());
    return code;
  };
  if (const Code code = group->failure()) return refuse(code, group->failure_text());
  if (group->suspended) return refuse(kSuspending, "the communicator is suspended; call HcclCommResume first");
  MemoryHold hold;
  std::vector<MessageWork::Item> items;
  for (const Message& message : messages) {
    if (message.peer >= group->ranks()) {
      return refuse(kPara,
                    fmt::format("rank {} is not in {}, which has {}", message.peer, group->name(), group->ranks()));
    }
    const std::uint64_t size = element_bytes(message.data_type);
    if (size == 0) return refuse(kPara, fmt::format("there is no data type {}", message.data_type));
    if (message.count > kMaxElements) return refuse(kPara, fmt::format("{} elements are too many", message.count));
    const Result<void> held =
        hold.add(message.send ? "memory to send" : "memory to receive into", message.buffer, message.count * size);
    if (!held.ok()) return refuse(kPara, held.error().text());
    items.push_back({message, 0, MessageWork::Item::State::kWaiting, nullptr});
  }
  MutexLock lock(group->issue_mutex);
  auto sends = group->next_send;
  auto receives = group->next_receive;
  for (MessageWork::Item& item : items) {
    auto& numbers = item.message.send ? sends : receives;
    item.number = numbers[item.message.peer]++;
  }
  if (!enqueue(stream, std::make_unique<MessageWork>(group, std::move(items), std::move(hold)))) return kRuntime;
  group->next_send = std::move(sends);
  group->next_receive = std::move(receives);
  return kSuccess;
}

}  // namespace onesided::sim::hccl
