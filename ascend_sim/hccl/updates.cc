// What ranks on different hosts tell each other, so that each has a current copy of the other's page.
#include <fmt/format.h>

#include <cstring>

#include "ascend_sim/hccl/communicator_update.h"
#include "onesided/base/futex.h"

namespace onesided::sim::hccl {

void Communicator::tell(std::uint32_t peer, const Update& update, std::string_view tail) {
  if (on_this_host(peer)) return;
  std::string message(reinterpret_cast<const char*>(&update), sizeof(update));
  message += tail;
  const auto told = board_.tell(members_[peer].engine_id, fmt::format("hccl-{:016x}-{}", instance_, peer), message);
  // What cannot be told is the end of the group; a rank that is leaving has no more to say.
  if (told.ok() || update.kind == Update::kState || update.kind == Update::kFailure) return;
  fail(Error(Status::kPeerLost, fmt::format("rank {} of {} at {} does not answer: {}", peer, name(),
                                            members_[peer].engine_id, told.error().text())));
}

void Communicator::tell_all(const Update& update, std::string_view tail) {
  if (!several_hosts_) return;
  for (std::uint32_t peer = 0; peer < ranks(); ++peer) tell(peer, update, tail);
}

void Communicator::take_update(std::string_view message) {
  Update update{};
  if (message.size() < sizeof(update)) return;
  std::memcpy(&update, message.data(), sizeof(update));
  std::string_view tail = message.substr(sizeof(update));
  if (update.rank >= ranks() || on_this_host(update.rank)) return;
  const RankPage page = pages_[update.rank];
  PageHead& head = page.head();
  OpRecord record{};
  const bool has_record = update.kind == Update::kPublished || update.kind == Update::kSent;
  if (has_record) {
    if (tail.size() < sizeof(record)) return;
    std::memcpy(&record, tail.data(), sizeof(record));
    tail.remove_prefix(sizeof(record));
  }
  switch (update.kind) {
    case Update::kPublished: {
      const auto parts = page.parts(update.number);
      if (tail.size() < parts.size_bytes()) return;
      std::memcpy(parts.data(), tail.data(), parts.size_bytes());
      tail.remove_prefix(parts.size_bytes());
      if (tail.size() > kInlineBytes || (record.source.on_page != 0 && tail.size() != record.source.nbytes)) return;
      std::memcpy(page.payload(update.number), tail.data(), tail.size());
      SlotHead& slot = page.slot(update.number);
      slot.record = record;
      slot.progress.store(0, std::memory_order_relaxed);
      head.published.store(update.number, std::memory_order_release);
      break;
    }
    case Update::kProgress: page.slot(update.number).progress.store(update.value, std::memory_order_release); break;
    case Update::kFinished: head.finished.store(update.number, std::memory_order_release); break;
    case Update::kSent: {
      PairHead& pair = page.pair(rank_);
      if (tail.size() > kSendInlineBytes || (record.source.on_page != 0 && tail.size() != record.source.nbytes)) return;
      pair.record = record;
      std::memcpy(page.pair_payload(rank_), tail.data(), tail.size());
      pair.sent.store(update.number, std::memory_order_release);
      break;
    }
    case Update::kReceived:
      page.pair(rank_).refused.store(static_cast<std::uint32_t>(update.value), std::memory_order_relaxed);
      page.pair(rank_).received.store(update.number, std::memory_order_release);
      break;
    case Update::kState: head.state.store(static_cast<std::uint32_t>(update.number), std::memory_order_release); break;
    case Update::kFailure:
      head.failure.store(static_cast<std::int32_t>(update.number), std::memory_order_release);
      break;
    default: return;
  }
  head.beat.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(head.beat, FutexScope::kShared);
}

}  // namespace onesided::sim::hccl
