// The engine's transfer path. Separate from engine.cc because it is the performance-critical part.
#include <fmt/format.h>

#include <algorithm>

#include "onesided/engine/copy_leg.h"
#include "onesided/engine/engine.h"
#include "onesided/engine/engine_core.h"
#include "onesided/engine/queue_leg.h"

namespace onesided {
namespace {

// Up to this size the calling thread copies in one piece and without a Transfer; larger transfers are cut into pieces.
constexpr std::uint64_t kInlineBytes = 256 * kKiB;
constexpr std::size_t kInlineMoves = 64;
// From this size on, workers take part in a blocking transfer.
constexpr std::uint64_t kHelpBytes = 32 * kMiB;

bool fits_inline(const Plan& plan) {
  return plan.parts.size() == 1 && plan.parts[0].moves.size() <= kInlineMoves &&
         (plan.nbytes <= kInlineBytes || (plan.overlapping && plan.nbytes <= kPieceBytes)) &&
         std::holds_alternative<std::unique_ptr<CopyLink>>(plan.parts[0].link->link);
}

// Counts bytes and keeps the first error. For one piece on one thread.
class InlineSink : public PieceSink {
 public:
  InlineSink(std::span<const Move> moves, std::atomic<std::uint64_t>& bytes) : moves_(moves), bytes_(bytes) {}
  void arrived(std::size_t, std::uint64_t, std::uint64_t nbytes) override {
    bytes_.fetch_add(nbytes, std::memory_order_relaxed);
  }
  std::uint64_t refused(std::size_t move, std::uint64_t, const Error& error) override {
    if (!error_) error_ = error;
    return moves_[move].nbytes;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const std::span<const Move> moves_;
  std::atomic<std::uint64_t>& bytes_;
  std::optional<Error> error_;
};

// The most common transfer, one small item over a CopyLink: does for one item what make_plan() does for many. Returns
// std::nullopt if the transfer is not of this kind or if anything is invalid; then make_plan() reports the error.
std::optional<Result<void>> move_single(Registry& registry, Peer& peer, Op op, const TransferList& list,
                                        Deadline deadline) {
  if (list.items.size() != 1 || !list.rows.empty() || peer.is_self()) return std::nullopt;
  const TransferItem item = list.items[0];  // once: another thread may be changing the list
  if (item.nbytes == 0 || item.nbytes > kInlineBytes || item.local == 0 || item.remote == 0) return std::nullopt;
  if (list.instance && *list.instance != peer.instance()) return std::nullopt;
  RegionTraits traits;
  {
    RegionIndex::Lookup regions(peer.regions());
    const RegionRow* row = regions.find(item.remote, item.nbytes);
    if (!row || (list.instance && row->traits.key != list.keys[0])) return std::nullopt;
    traits = row->traits;
  }
  PeerLink* link = peer.link_for(traits, deadline);
  auto* copy = link ? std::get_if<std::unique_ptr<CopyLink>>(&link->link) : nullptr;
  if (!copy) return std::nullopt;
  auto local = Registry::LocalLookup(registry).hold(item.local, item.nbytes, op);
  if (!local.ok()) return std::nullopt;
  Move move;
  move.local = item.local;
  move.remote = item.remote;
  move.nbytes = item.nbytes;
  move.region = traits.key;
  move.device = local->device;
  const std::span moves(&move, 1);
  InlineSink sink(moves, link->bytes);
  move_piece(peer.copy_path(**copy), op, moves, sink);
  if (sink.error()) return Result<void>(*sink.error());
  return Result<void>();
}

// The legs of a plan: first those that threads copy, in order, then those that links run.
struct Legs {
  std::vector<std::shared_ptr<CopyLeg>> copies;
  std::vector<std::shared_ptr<QueueLeg>> queues;
};

Legs make_legs(const std::shared_ptr<Transfer>& transfer, Peer& peer, Plan& plan) {
  Legs legs;
  for (auto& part : plan.parts) {
    if (auto* copy = std::get_if<std::unique_ptr<CopyLink>>(&part.link->link)) {
      legs.copies.push_back(std::make_shared<CopyLeg>(transfer, peer.copy_path(**copy), std::move(part.moves), &peer,
                                                      &part.link->bytes, plan.overlapping));
    } else {
      auto& queue = *std::get<std::unique_ptr<QueueLink>>(part.link->link);
      legs.queues.push_back(std::make_shared<QueueLeg>(transfer, queue, std::move(part.moves), &part.link->bytes));
    }
  }
  std::vector<std::shared_ptr<Leg>> all(legs.copies.begin(), legs.copies.end());
  all.insert(all.end(), legs.queues.begin(), legs.queues.end());
  transfer->set_legs(std::move(all));
  return legs;
}

// Waits for the caller's own transfer. Returns the error if the wait ends before the transfer.
std::optional<Error> wait_for(Transfer& transfer, Engine::TimeoutMs timeout_ms, Deadline deadline,
                              const Engine::GiveUp& give_up) {
  constexpr std::int64_t kAskMs = 200;
  while (true) {
    if (transfer.wait(give_up ? std::min(deadline, Deadline::after_ms(kAskMs)) : deadline).ok()) return std::nullopt;
    if (deadline.passed())
      return Error(Status::kTimeout, fmt::format("{} of {} bytes had moved after {} ms", transfer.bytes_done(),
                                                 transfer.bytes_total(), *timeout_ms));
    if (give_up()) return Error(Status::kCancelled, "cancelled by its caller");
  }
}

std::vector<TransferItem> items_of(const TransferList& list) { return {list.items.begin(), list.items.end()}; }

}  // namespace

Error Engine::refusal(const Error& error) const {
  const auto open = enter();
  return open.ok() ? error : open.error();
}

std::optional<Error> Engine::run_inline(Peer& peer, Op op, const Plan& plan) {
  const auto& part = plan.parts[0];
  auto& link = *std::get<std::unique_ptr<CopyLink>>(part.link->link);
  InlineSink sink(part.moves, part.link->bytes);
  move_piece(peer.copy_path(link), op, part.moves, sink);
  return sink.error();
}

std::shared_ptr<Transfer> Engine::start(PeerUse use, Op op, std::vector<TransferItem> items, Plan& plan,
                                        Deadline deadline, bool caller_waits) {
  Peer& peer = use.hand_over();
  auto ended = [&peer, outstanding = caller_waits ? nullptr : &core_->outstanding](Transfer& transfer) {
    if (outstanding) outstanding->give_back();
    peer.transfer_ended(transfer);
  };
  auto transfer = std::make_shared<Transfer>(op, std::move(items), std::move(plan.holds), deadline, std::move(ended));
  auto legs = make_legs(transfer, peer, plan);
  peer.started(transfer);
  const bool help = !caller_waits || plan.nbytes >= kHelpBytes;
  // After the first post the transfer may end at any moment, and the peer may be destroyed; this use keeps the peer.
  UseScope keep_peer(peer.uses());
  for (const auto& leg : legs.queues) leg->post();
  // If the peer was lost before the legs were set, then nothing has stopped them.
  if (const auto reason = peer.unusable_reason()) transfer->stop(*reason);
  for (const auto& leg : legs.copies)
    if (help) core_->workers->add(leg);
  return transfer;
}

Result<void> Engine::transfer_sync(std::string_view remote_id, Op op, const TransferList& list, TimeoutMs timeout_ms,
                                   const GiveUp& give_up) {
  ONESIDED_TRY(enter());
  ONESIDED_TRY_ASSIGN(deadline, deadline_of(timeout_ms));
  ONESIDED_TRY_ASSIGN(use, core_->connections->use(remote_id, core_->options.auto_connect, deadline));
  if (auto done = move_single(*core_->registry, *use, op, list, deadline)) return *std::move(done);
  Plan plan;
  if (const auto planned = make_plan(*core_->registry, *use, op, list, deadline, plan); !planned.ok())
    return refusal(planned.error());
  if (fits_inline(plan)) {
    if (auto error = run_inline(*use, op, plan)) return *error;
    return {};
  }
  const auto transfer = start(std::move(use), op, items_of(list), plan, deadline, true);
  if (const auto why = wait_for(*transfer, timeout_ms, deadline, give_up)) {
    transfer->stop(*why);
    (void)transfer->wait(Deadline::never());
  }
  if (transfer->status() == TransferStatus::kCompleted) return {};
  return *transfer->error();
}

Result<std::shared_ptr<Transfer>> Engine::transfer_async(std::string_view remote_id, Op op, const TransferList& list,
                                                         TimeoutMs timeout_ms) {
  ONESIDED_TRY(enter());
  ONESIDED_TRY_ASSIGN(deadline, deadline_of(timeout_ms));
  ONESIDED_TRY_ASSIGN(use, core_->connections->use(remote_id, core_->options.auto_connect, deadline));
  Plan plan;
  const auto planned = make_plan(*core_->registry, *use, op, list, deadline, plan);
  return launch(std::move(use), op, items_of(list), planned, plan, deadline);
}

Result<std::shared_ptr<Transfer>> Engine::transfer(Op op, const PreparedList& local, const Indices& local_indices,
                                                   const PreparedList& remote, const Indices& remote_indices,
                                                   TimeoutMs timeout_ms) {
  ONESIDED_TRY(enter());
  ONESIDED_TRY_ASSIGN(deadline, deadline_of(timeout_ms));
  if (!local.is_local() || remote.is_local())
    return Error(Status::kParamInvalid, "the first list must be local and the second remote");
  if (local.instance() != core_->connections->instance())
    return Error(Status::kParamInvalid, "the local list was prepared by another engine");
  ONESIDED_TRY_ASSIGN(use, core_->connections->use(remote.peer_id(), core_->options.auto_connect, deadline));
  Plan plan;
  std::vector<TransferItem> items;
  const auto planned =
      plan_prepared(*core_->registry, *use, op, local, local_indices, remote, remote_indices, deadline, items, plan);
  return launch(std::move(use), op, std::move(items), planned, plan, deadline);
}

Result<std::shared_ptr<Transfer>> Engine::launch(PeerUse use, Op op, std::vector<TransferItem> items,
                                                 const Result<void>& planned, Plan& plan, Deadline deadline) {
  if (planned.status() == Status::kStale) return Transfer::refused(op, std::move(items), planned.error());
  if (!planned.ok()) return refusal(planned.error());
  // If the inline copy fails, it is repeated as a transfer, which reports the result of each item.
  if (fits_inline(plan) && !run_inline(*use, op, plan)) return Transfer::arrived(op, std::move(items));
  if (!core_->outstanding.take(core_->options.max_outstanding, deadline))
    return Error(Status::kTimeout,
                 fmt::format("{} transfers are unfinished (option max_outstanding), and none ended within the timeout",
                             core_->options.max_outstanding));
  return start(std::move(use), op, std::move(items), plan, deadline, false);
}

}  // namespace onesided
