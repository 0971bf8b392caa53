#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ascend_sim/acl/sim_api.h"
#include "ascend_sim/hccl/communicator_update.h"
#include "onesided/base/brief_look.h"
#include "onesided/base/futex.h"
#include "onesided/base/log.h"

namespace onesided::sim::hccl {
namespace {

// How long a rank sleeps before it looks whether there is still something to wait for, and how often it then looks
// whether the other's process still runs.
constexpr std::int64_t kTickMs = 20;
constexpr std::uint32_t kTicksPerLifeSign = 5;
constexpr std::int64_t kDestroyPatienceMs = 5000;

}  // namespace

Code code_of(Status status) {
  switch (status) {
    case Status::kSuccess: return kSuccess;
    case Status::kParamInvalid:
    case Status::kMisaligned: return kPara;
    case Status::kTimeout: return kTimeout;
    case Status::kNotConnected:
    case Status::kAuthFailed: return kTcpConnect;
    case Status::kUnsupported: return kNotSupport;
    case Status::kResourceExhausted: return kOutOfMemory;
    case Status::kPeerLost:
    case Status::kStale: return kRemote;
    case Status::kCancelled: return kSuspending;
    case Status::kNotFound: return kNotFound;
    default: return kInternal;
  }
}

// ---- Joining ----

Communicator::Communicator(Switchboard& board, std::uint32_t rank, Options options)
    : board_(board), rank_(rank), options_(std::move(options)) {}

Result<std::shared_ptr<Communicator>> Communicator::join(Switchboard& board, const Meeting& meeting, std::uint32_t rank,
                                                         const Options& options) {
  const Deadline deadline = Deadline::after_ms(options.connect_timeout_ms);
  std::shared_ptr<Communicator> self(new Communicator(board, rank, options));
  ONESIDED_TRY(self->make_page(meeting.ranks));
  Member member;
  member.rank = rank;
  member.engine_id = board.id();
  member.host = host_identity();
  onesided_sim_self(&member.pid, &member.start_time);
  member.page_file = self->page_file_.get();
  member.page_inode = self->page_inode_;
  ONESIDED_TRY_ASSIGN(table, meet(board, meeting, member, deadline));
  self->instance_ = table.instance;
  if (self->options_.name.empty()) self->options_.name = fmt::format("{}_{:016x}", meeting.engine_id, table.instance);
  ONESIDED_TRY(self->open_pages(table));
  {
    MutexLock lock(self->issue_mutex);
    self->next_send.assign(meeting.ranks, 1);
    self->next_receive.assign(meeting.ranks, 1);
  }
  if (self->several_hosts_) {
    board.listen(self->topic_, [weak = std::weak_ptr(self)](std::string_view message) {
      if (const auto alive = weak.lock()) alive->take_update(message);
    });
  }
  self->set_state(PageState::kJoined);
  ONESIDED_TRY(self->wait_for_all_joined(deadline));
  return self;
}

Communicator::~Communicator() {
  if (several_hosts_) board_.ignore(topic_);
}

Result<void> Communicator::make_page(std::uint32_t ranks) {
  Fd file(::memfd_create("onesided_sim_rank", MFD_CLOEXEC));
  struct stat info{};
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(RankPage::bytes(ranks))) != 0 ||
      ::fstat(file.get(), &info) != 0) {
    return Error(Status::kResourceExhausted, fmt::format("no memory for a rank's page: {}", std::strerror(errno)));
  }
  page_file_ = std::move(file);
  page_inode_ = info.st_ino;
  return {};
}

Result<void> Communicator::open_pages(const Table& table) {
  members_ = table.members;
  topic_ = fmt::format("hccl-{:016x}-{}", instance_, rank_);
  const std::uint32_t count = ranks();
  pages_.resize(count);
  for (std::uint32_t other = 0; other < count; ++other) {
    const Member& member = members_[other];
    if (on_this_host(other)) {
      ONESIDED_TRY_ASSIGN(view, FileView::open(member.pid, member.page_file, member.page_inode, true));
      if (view->nbytes() != RankPage::bytes(count)) {
        return Error(Status::kParamInvalid, fmt::format("rank {}'s page has an unexpected length", other));
      }
      pages_[other] = RankPage(view->base(), count);
      views_.push_back(std::move(view));
    } else {
      several_hosts_ = true;
      copies_.push_back(std::make_unique<std::byte[]>(RankPage::bytes(count) + 64));
      auto address = reinterpret_cast<std::uintptr_t>(copies_.back().get());
      pages_[other] = RankPage(reinterpret_cast<std::byte*>((address + 63) / 64 * 64), count);
    }
  }
  PageHead& head = own().head();
  head.instance = instance_;
  head.rank = rank_;
  head.ranks = count;
  return {};
}

Result<void> Communicator::wait_for_all_joined(Deadline deadline) {
  constexpr auto kNever = [](void*) { return 0; };
  const StopProbe stop(kNever, nullptr);
  for (std::uint32_t other = 0; other < ranks(); ++other) {
    const PageHead& head = page(other).head();
    ONESIDED_TRY(wait(other, {deadline, stop}, [&] {
      return head.state.load(std::memory_order_acquire) != static_cast<std::uint32_t>(PageState::kJoining);
    }));
  }
  return {};
}

bool Communicator::in_this_process(std::uint32_t rank) const {
  return on_this_host(rank) && members_[rank].pid == members_[rank_].pid;
}

// ---- Changes of the own page ----

void Communicator::changed() const {
  PageHead& head = own().head();
  // T0 (who waits): reads beat, finds nothing, counts itself as a sleeper, sleeps while beat is what it was |
  // T1: changes the page, changes beat, looks for sleepers. Either T1 sees the sleeper or T0 sees the new beat.
  head.beat.fetch_add(1, std::memory_order_seq_cst);
  if (head.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(head.beat, FutexScope::kShared);
}

void Communicator::set_state(PageState state) {
  own().head().state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
  changed();
  tell_all({Update::kState, rank_, static_cast<std::uint64_t>(state), 0});
}

void Communicator::publish(std::uint64_t op, const OpRecord& record, std::span<const Part> parts, const void* payload) {
  SlotHead& slot = own().slot(op);
  slot.record = record;
  slot.progress.store(0, std::memory_order_relaxed);
  std::copy(parts.begin(), parts.end(), own().parts(op).begin());
  if (record.source.on_page != 0) std::memcpy(own().payload(op), payload, record.source.nbytes);
  own().head().published.store(op, std::memory_order_release);
  changed();
  if (!several_hosts_) return;
  std::string tail(reinterpret_cast<const char*>(&record), sizeof(record));
  tail.append(reinterpret_cast<const char*>(parts.data()), parts.size_bytes());
  if (record.source.on_page != 0) tail.append(static_cast<const char*>(payload), record.source.nbytes);
  tell_all({Update::kPublished, rank_, op, 0}, tail);
}

void Communicator::progress(std::uint64_t op, std::uint64_t nbytes) {
  own().slot(op).progress.store(nbytes, std::memory_order_release);
  changed();
  tell_all({Update::kProgress, rank_, op, nbytes});
}

void Communicator::finish(std::uint64_t op) {
  own().head().finished.store(op, std::memory_order_release);
  changed();
  tell_all({Update::kFinished, rank_, op, 0});
}

void Communicator::send(std::uint32_t peer, std::uint64_t number, const OpRecord& record, const void* payload) {
  PairHead& pair = own().pair(peer);
  pair.record = record;
  if (record.source.on_page != 0) std::memcpy(own().pair_payload(peer), payload, record.source.nbytes);
  pair.sent.store(number, std::memory_order_release);
  changed();
  if (on_this_host(peer)) return;
  std::string tail(reinterpret_cast<const char*>(&record), sizeof(record));
  if (record.source.on_page != 0) tail.append(static_cast<const char*>(payload), record.source.nbytes);
  tell(peer, {Update::kSent, rank_, number, 0}, tail);
}

void Communicator::received(std::uint32_t peer, std::uint64_t number, bool refused) {
  PairHead& pair = own().pair(peer);
  pair.refused.store(refused ? 1 : 0, std::memory_order_relaxed);
  pair.received.store(number, std::memory_order_release);
  changed();
  tell(peer, {Update::kReceived, rank_, number, refused ? 1U : 0U});
}

// ---- Waiting ----

Result<void> Communicator::wait(std::uint32_t peer, const Patience& patience, const std::function<bool()>& ready,
                                std::int64_t at_most_ms) {
  if (ready()) return {};
  thread_local BriefLook look;
  if (look.worthwhile()) {
    const auto until = Clock::now() + BriefLook::kLength;
    bool found = false;
    while (!(found = ready()) && Clock::now() < until) {
    }
    look.ended(found);
    if (found) return {};
  }
  const Deadline limit = at_most_ms < 0 ? Deadline::never() : Deadline::after_ms(at_most_ms);
  PageHead& head = page(peer).head();
  std::uint32_t ticks = 0;
  while (true) {
    const std::uint32_t beat = head.beat.load(std::memory_order_seq_cst);
    if (ready()) return {};
    ONESIDED_TRY(check(peer, patience, ready, ticks));
    if (limit.passed()) return {};
    head.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const Deadline tick = std::min({patience.deadline, limit, Deadline::after_ms(kTickMs)});
    if (!futex_wait(head.beat, beat, tick, FutexScope::kShared)) ++ticks;
    head.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

Result<void> Communicator::check(std::uint32_t peer, const Patience& patience, const std::function<bool()>& ready,
                                 std::uint32_t& ticks) {
  if (patience.stop.stopped()) return Error(Status::kCancelled, "the stream was aborted during a collective");
  if (cancelled_.load(std::memory_order_acquire)) {
    return Error(Status::kCancelled, fmt::format("communicator {} was destroyed during an operation", name()));
  }
  const PageHead& head = page(peer).head();
  const auto failure = head.failure.load(std::memory_order_acquire);
  const bool left = head.state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(PageState::kClosed);
  const bool dead = !left && failure == 0 && ticks >= kTicksPerLifeSign && !reachable(peer);
  if (ticks >= kTicksPerLifeSign) ticks = 0;
  // What it did last counts, also when it has gone since.
  if ((failure != 0 || left || dead) && ready()) return {};
  if (failure != 0) {
    return Error(failure == kPara ? Status::kParamInvalid : Status::kPeerLost,
                 fmt::format("rank {} of {} has failed with {}", peer, name(), code_name(failure)));
  }
  if (left) return Error(Status::kPeerLost, fmt::format("rank {} has destroyed communicator {}", peer, name()));
  if (dead) {
    return Error(Status::kPeerLost, fmt::format("rank {} of {} (process {} at {}) has died", peer, name(),
                                                members_[peer].pid, members_[peer].engine_id));
  }
  if (patience.deadline.passed()) {
    return Error(
        Status::kTimeout,
        fmt::format("rank {} of {} waited for rank {} until the time-out (HCCL_EXEC_TIMEOUT)", rank_, name(), peer));
  }
  return {};
}

bool Communicator::reachable(std::uint32_t peer) {
  if (on_this_host(peer)) return onesided_sim_alive(members_[peer].pid, members_[peer].start_time) != 0;
  const Update ping{Update::kPing, rank_, 0, 0};
  return board_
      .tell(members_[peer].engine_id, fmt::format("hccl-{:016x}-{}", instance_, peer),
            {reinterpret_cast<const char*>(&ping), sizeof(ping)})
      .ok();
}

Result<void> Communicator::wait_turn(std::uint64_t op, const Patience& patience) {
  return wait(rank_, patience, [&] { return ended_.load(std::memory_order_acquire) + 1 == op; });
}

void Communicator::ended(std::uint64_t op) {
  ended_.store(op, std::memory_order_release);
  changed();
}

// ---- Failing and leaving ----

void Communicator::fail(const Error& error) {
  const Code code = code_of(error.status());
  {
    MutexLock lock(failure_mutex_);
    if (!failure_text_.empty()) return;
    failure_text_ = error.text();
  }
  log_line(LogLevel::kInfo, fmt::format("hccl: rank {}: {} ({})", rank_, error.text(), code_name(code)));
  own().head().failure.store(code, std::memory_order_release);
  changed();
  tell_all({Update::kFailure, rank_, static_cast<std::uint64_t>(code), 0});
}

std::string Communicator::failure_text() {
  MutexLock lock(failure_mutex_);
  return failure_text_;
}

void Communicator::destroy() {
  const Deadline patience = Deadline::after_ms(kDestroyPatienceMs);
  while (outstanding_.load() != 0) {
    if (patience.passed() || failure() != kSuccess) cancelled_.store(true, std::memory_order_release);
    const std::uint32_t beat = own().head().beat.load();
    if (outstanding_.load() == 0) break;
    futex_wait(own().head().beat, beat, Deadline::after_ms(kTickMs), FutexScope::kShared);
  }
  set_state(PageState::kClosed);
}

}  // namespace onesided::sim::hccl
