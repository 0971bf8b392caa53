#include "onesided/engine/peer.h"

#include <fmt/format.h>

#include <algorithm>

namespace onesided {
namespace {

// How long a transfer waits for the descriptors of newly registered memory. Normally they have arrived already. A
// suspended owner may not have sent them; then another transport is used.
constexpr std::int64_t kShareWaitMs = 50;

}  // namespace

Peer::Peer(std::shared_ptr<Session> session)
    : session_(std::move(session)), engine_id_(session_->peer().engine_id), instance_(session_->hello().instance) {}

Peer::Peer(std::string engine_id, InstanceId instance, std::shared_ptr<RegionTable> table,
           std::unique_ptr<CopyLink> link)
    : engine_id_(std::move(engine_id)),
      instance_(instance),
      table_(std::move(table)),
      regions_(std::make_unique<RegionIndex>(table_)) {
  auto self = std::make_unique<PeerLink>();
  self->transport = "self";
  self->link = std::move(link);
  links_.push_back(std::move(self));
  introduced_ = linked_ = true;
}

Peer::~Peer() { ONESIDED_CHECK(uses_.users() == 0, "peer {} is destroyed with {} uses", engine_id_, uses_.users()); }

void Peer::on_table_offer(const TableOffer& offer, std::vector<Fd> fds) {
  MutexLock lock(mutex_);
  if (introduced_ || table_) return;
  auto take = [&]() -> Result<void> {
    if (fds.size() != 2)
      return Error(Status::kParamInvalid, fmt::format("the peer's introduction came with {} descriptors", fds.size()));
    ONESIDED_TRY_ASSIGN(table, RegionTable::map(std::move(fds[0]), offer.table_bytes));
    ONESIDED_TRY_ASSIGN(leases, LeasePage::map(std::move(fds[1]), offer.lease_bytes));
    table_ = std::move(table);
    leases_ = std::move(leases);
    return {};
  };
  if (auto taken = take(); !taken.ok()) {
    protocol_error_ = taken.error();
    changed_.notify_all();
  }
}

void Peer::on_region_update(const RegionUpdate& update, std::vector<Fd> fds) {
  MutexLock lock(mutex_);
  if (!session_->peer().local) {
    if (!table_) {
      auto table = RegionTable::create_private(0);
      if (!table.ok()) {
        protocol_error_ = table.error();
        changed_.notify_all();
        return;
      }
      table_ = std::move(table).value();
    }
    apply(update);
  }
  if (linked_)
    share(update, std::move(fds));
  else
    backlog_.emplace_back(update, std::move(fds));
  introduced_ = introduced_ || update.complete;
  changed_.notify_all();
}

void Peer::apply(const RegionUpdate& update) {
  for (const auto& key : update.dropped) table_->retire(key);
  for (const auto& region : update.added)
    if (region.key.index < RegionTable::kCapacity && region.key.generation != 0 && !table_->live(region.key))
      table_->publish(region);
}

void Peer::share(const RegionUpdate& update, std::vector<Fd> fds) {
  for (const auto& link : links_) {
    for (std::size_t i = 0; i < update.file_ids.size() && i < fds.size(); ++i)
      if (fds[i].valid()) link->base().share_file(update.file_ids[i], fds[i]);
    for (const auto& region : update.added)
      if (!region.pieces.empty()) link->base().share_region(region);
    for (const auto& key : update.dropped) link->base().unshare_region(key);
  }
  for (const auto& key : update.dropped) unshared_.erase(key);
}

void Peer::on_table_synced(std::uint64_t tag) {
  MutexLock lock(mutex_);
  synced_tag_ = std::max(synced_tag_, tag);
  changed_.notify_all();
}

void Peer::on_lost(const Error& reason) {
  {
    MutexLock lock(mutex_);
    if (!unusable_) unusable_ = reason;
    lost_ = true;
    gone_.store(true, std::memory_order_seq_cst);
    changed_.notify_all();
  }
  stop_all(reason.with_context(fmt::format("peer {}", engine_id_)));
}

Result<void> Peer::open_links(const std::vector<Transport*>& transports, Deadline deadline) {
  MutexLock lock(mutex_);
  while (!introduced_ && !unusable_ && !protocol_error_)
    if (!changed_.wait(lock, deadline) && !introduced_)
      return Error(
          Status::kTimeout,
          fmt::format("{} accepted the connection but did not publish its memory within the timeout", engine_id_));
  if (protocol_error_) return *protocol_error_;
  if (unusable_) return *unusable_;
  lock.unlock();

  PeerInfo info = session_->peer();
  if (info.local) {
    info.proof = table_->instance();
    info.proof_address = table_->proof_address();
  }
  for (Transport* transport : transports) {
    auto made = [&]() -> Result<AnyLink> {
      ONESIDED_TRY(transport->reach(info));
      return transport->connect(session_, info, deadline);
    }();
    if (!made.ok()) {
      not_used_.emplace_back(transport->name(), made.error().text());
      continue;
    }
    auto link = std::make_unique<PeerLink>();
    link->transport = transport->name();
    link->link = std::move(made).value();
    links_.push_back(std::move(link));
  }
  if (auto reason = unusable_reason()) return *reason;  // a lost peer explains why no link could be opened
  if (links_.empty()) {
    std::string reasons;
    for (const auto& [name, why] : not_used_)
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, why);
    return Error(Status::kUnsupported, fmt::format("no transport reaches {} ({})", engine_id_, reasons));
  }
  lock.lock();
  regions_ = std::make_unique<RegionIndex>(table_);
  for (auto& [update, fds] : backlog_) share(update, std::move(fds));
  backlog_.clear();
  linked_ = true;
  return {};
}

void Peer::close(const Error& why) {
  {
    MutexLock lock(mutex_);
    if (!unusable_) unusable_ = why;
    gone_.store(true, std::memory_order_seq_cst);
    changed_.notify_all();
  }
  stop_all(why);
  // Threads blocked in a send would otherwise keep the peer in use for as long as it is suspended.
  if (session_) session_->stop_sending(why);
  uses_.wait_idle(Deadline::never());
  if (!session_) return;
  session_->close(why.text());
  // Otherwise a connect() directly afterwards would get ALREADY_CONNECTED.
  MutexLock lock(mutex_);
  while (!lost_) changed_.wait(lock);
}

std::optional<Error> Peer::unusable_reason() const {
  if (!gone_.load(std::memory_order_seq_cst)) return std::nullopt;
  MutexLock lock(mutex_);
  return unusable_->with_context(fmt::format("peer {}", engine_id_));
}

void Peer::stop_all(const Error& why) {
  std::vector<std::shared_ptr<Transfer>> running;
  {
    MutexLock lock(mutex_);
    for (const auto& [raw, weak] : transfers_)
      if (auto transfer = weak.lock()) running.push_back(std::move(transfer));
  }
  for (const auto& transfer : running) transfer->stop(why);
}

bool Peer::sync_table(Deadline deadline) {
  if (!session_ || session_->peer().local) return true;
  MutexLock lock(mutex_);
  const std::uint64_t tag = next_tag_++;
  lock.unlock();
  if (!session_->send(TableRequest{tag}, {}, deadline).ok()) return false;
  lock.lock();
  while (synced_tag_ < tag && !unusable_)
    if (!changed_.wait(lock, deadline)) break;
  return synced_tag_ >= tag;
}

PeerLink* Peer::link_for(const RegionTraits& traits, Deadline deadline) {
  for (std::size_t i = 0; i < links_.size(); ++i)
    if (links_[i]->base().carries(traits) || wait_until_shared(i, traits, deadline)) return links_[i].get();
  return nullptr;
}

bool Peer::wait_until_shared(std::size_t which, const RegionTraits& traits, Deadline deadline) {
  const PeerLink& link = *links_[which];
  if (!traits.exported || link.transport != "shm") return false;
  const bool another = std::any_of(links_.begin() + static_cast<std::ptrdiff_t>(which) + 1, links_.end(),
                                   [&](const auto& other) { return other->base().carries(traits); });
  if (another) deadline = std::min(deadline, Deadline::after_ms(kShareWaitMs));
  MutexLock lock(mutex_);
  if (another && unshared_.contains(traits.key)) return false;
  while (!link.base().carries(traits)) {
    if (unusable_ || !table_->live(traits.key)) return false;
    if (!changed_.wait(lock, deadline) && deadline.passed()) break;
  }
  if (link.base().carries(traits)) return true;
  unshared_.insert(traits.key);  // not waited for again if another link carries it
  return false;
}

CopyPath Peer::copy_path(CopyLink& link) const { return {&link, table_.get(), leases_.get(), session_.get()}; }

void Peer::started(const std::shared_ptr<Transfer>& transfer) {
  MutexLock lock(mutex_);
  transfers_[transfer.get()] = transfer;
}

void Peer::transfer_ended(Transfer& transfer) {
  {
    MutexLock lock(mutex_);
    transfers_.erase(&transfer);
  }
  uses_.leave();  // last: the peer may be destroyed afterwards
}

Result<void> Peer::send_notify(std::string_view name, std::string_view message, Deadline deadline) {
  if (!session_) return Error(Status::kUnsupported, "an engine does not notify itself");
  ONESIDED_TRY_ASSIGN(sequence, queue_notify(name, message, deadline));
  MutexLock lock(mutex_);
  const auto receipt = awaited_receipts_.find(sequence);
  while (!receipt->second && !unusable_)
    if (!changed_.wait(lock, deadline)) break;
  const auto status = receipt->second;
  awaited_receipts_.erase(receipt);
  if (status == Status::kSuccess) return {};
  if (status)
    return Error(Status::kNotifyFailed,
                 fmt::format("{} did not accept the notification \"{}\" ({}); its program must call "
                             "get_notifies()",
                             engine_id_, name, status_name(*status)));
  if (unusable_) return unusable_->with_context("send_notify");
  return Error(Status::kTimeout,
               fmt::format("{} did not confirm the notification in time; it may still arrive", engine_id_));
}

// Each caller waits for capacity until its own deadline. Only then is its notification numbered and queued.
Result<std::uint64_t> Peer::queue_notify(std::string_view name, std::string_view message, Deadline deadline) {
  Notify notify{0, std::string(name), std::string(message)};
  while (true) {
    ONESIDED_TRY(session_->wait_for_capacity(deadline));
    MutexLock order(notify_mutex_);
    notify.sequence = next_notify_;
    MutexLock lock(mutex_);
    awaited_receipts_[notify.sequence];  // the receipt may arrive before send() returns
    lock.unlock();
    auto sent = session_->send(notify, {}, Deadline::after_ms(std::int64_t{0}));
    if (sent.ok()) return next_notify_++;
    lock.lock();
    awaited_receipts_.erase(notify.sequence);
    // Another thread may have used the capacity.
    if (sent.status() != Status::kTimeout || deadline.passed()) return sent.error();
  }
}

void Peer::on_notify_ack(const NotifyAck& ack) {
  MutexLock lock(mutex_);
  // A caller whose wait timed out has removed its entry.
  const auto receipt = awaited_receipts_.find(ack.sequence);
  if (receipt == awaited_receipts_.end()) return;
  receipt->second = ack.status;
  changed_.notify_all();
}

Peer::Stats Peer::stats() const {
  Stats stats;
  for (const auto& link : links_)
    stats.bytes.emplace_back(link->transport, link->bytes.load(std::memory_order_relaxed));
  stats.not_used = not_used_;
  stats.instance = instance_;
  MutexLock lock(mutex_);
  stats.transfers = transfers_.size();
  return stats;
}

}  // namespace onesided
