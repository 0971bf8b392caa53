#include "onesided/engine/guests.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "onesided/base/log.h"

namespace onesided {
namespace {

// Of one message; a look whether the guest still reads comes after each.
constexpr std::size_t kRegionsAtOnce = 8192;

Deadline at_once() { return Deadline::after_ms(std::int64_t{0}); }

}  // namespace

Result<void> Guests::on_accepted(const std::shared_ptr<Session>& session) {
  auto guest = std::make_shared<Guest>();
  guest->session = session;
  std::vector<Fd> fds;
  if (session->peer().local) {
    ONESIDED_TRY_ASSIGN(leases, LeasePage::create());
    guest->leases = std::move(leases);
    fds.push_back(registry_.table()->file().duplicate());
    fds.push_back(guest->leases->file().duplicate());
    if (!fds[0].valid() || !fds[1].valid())
      return Error(Status::kResourceExhausted, "the owner has no file descriptors left for another peer");
  }
  MutexLock lock(mutex_);
  if (guest->leases)
    ONESIDED_TRY(
        session->send(TableOffer{registry_.table()->nbytes(), 0, LeasePage::kBytes}, std::move(fds), at_once()));
  // Known now, and behind: it is told the rest when this has been sent.
  guests_[session->id()] = guest;
  return {};
}

void Guests::on_drained(const std::shared_ptr<Session>& session) {
  MutexLock lock(mutex_);
  const auto at = guests_.find(session->id());
  if (at != guests_.end() && at->second->behind) catch_up(*at->second);
}

// Whether a change can be told now. If not, catch_up() will find it.
bool Guests::follows(Guest& guest) {
  guest.behind = guest.behind || !guest.session->drained();
  return !guest.behind && !guest.given_up;
}

void Guests::catch_up(Guest& guest) {
  if (guest.given_up) return;
  if (auto told = tell_all(guest); !told.ok()) give_up(guest, told.error());
}

// All that it does not know yet, as long as it reads; the rest when it has read.
Guests::Told Guests::tell_all(Guest& guest) {
  std::vector<RegionKey> gone;
  std::vector<RegionDesc> news;
  std::set<RegionKey> live;
  for (auto& region : registry_.snapshot()) {
    if (!concerns(guest, region)) continue;
    live.insert(region.key);
    if (!guest.regions.contains(region.key)) news.push_back(std::move(region));
  }
  for (const auto& [key, files] : guest.regions)
    if (!live.contains(key)) gone.push_back(key);
  while (guest.session->drained()) {
    if (!gone.empty()) {
      ONESIDED_TRY(tell_dropped(guest, gone));
    } else if (!news.empty()) {
      ONESIDED_TRY(tell_added(guest, news));
    } else if (!std::exchange(guest.introduced, true)) {
      RegionUpdate complete;
      complete.complete = true;
      ONESIDED_TRY(tell(guest, std::move(complete), {}));
    } else if (guest.asked) {
      ONESIDED_TRY(answer(guest));
    } else {
      guest.behind = false;
      return {};
    }
  }
  guest.behind = true;
  return {};
}

Guests::Told Guests::tell(Guest& guest, RegionUpdate update, std::vector<Fd> fds) {
  update.epoch = ++guest.epoch;
  return guest.session->send(update, std::move(fds), at_once());
}

Guests::Told Guests::answer(Guest& guest) {
  return guest.session->send(TableSynced{*std::exchange(guest.asked, std::nullopt)}, {}, at_once());
}

// The last of them, as many as go into one message.
Guests::Told Guests::tell_added(Guest& guest, std::vector<RegionDesc>& regions) {
  RegionUpdate update;
  std::vector<Fd> fds;
  while (!regions.empty() && update.added.size() < kRegionsAtOnce) {
    auto& region = regions.back();
    if (guest.leases) {
      if (!update.added.empty() && fds.size() + region.pieces.size() > kMaxAttachedFds) break;
      ONESIDED_TRY(tell_files(guest, region, update, fds));
    } else {
      region.pieces.clear();
      guest.regions[region.key];
    }
    update.added.push_back(std::move(region));
    regions.pop_back();
  }
  return tell(guest, std::move(update), std::move(fds));
}

// Files go before the regions that lie in them: where one region needs more than a message takes, in messages before.
Guests::Told Guests::tell_files(Guest& guest, const RegionDesc& region, RegionUpdate& update, std::vector<Fd>& fds) {
  auto& files = guest.regions[region.key];
  for (const auto& piece : region.pieces) {
    if (!guest.files.contains(piece.file_id)) {
      Fd fd = registry_.files().duplicate(piece.file_id);
      // Out of descriptors, or deregistered meanwhile: the guest finds the file missing and uses another transport.
      if (!fd.valid()) continue;
      update.file_ids.push_back(piece.file_id);
      fds.push_back(std::move(fd));
    }
    ++guest.files[piece.file_id];
    files.push_back(piece.file_id);
    if (fds.size() == kMaxAttachedFds)
      ONESIDED_TRY(tell(guest, std::exchange(update, RegionUpdate()), std::exchange(fds, {})));
  }
  return {};
}

// As above.
Guests::Told Guests::tell_dropped(Guest& guest, std::vector<RegionKey>& keys) {
  RegionUpdate update;
  for (; !keys.empty() && update.dropped.size() < kRegionsAtOnce; keys.pop_back()) {
    const auto region = guest.regions.extract(keys.back());
    for (const auto file : region.mapped())
      if (--guest.files[file] == 0) guest.files.erase(file);
    update.dropped.push_back(keys.back());
  }
  return tell(guest, std::move(update), {});
}

bool Guests::concerns(const Guest& guest, const RegionDesc& region) { return !guest.leases || !region.pieces.empty(); }

void Guests::give_up(Guest& guest, const Error& error) {
  guest.given_up = true;
  if (!guest.session->alive()) return;
  log_line(LogLevel::kWarn,
           fmt::format("peer {} cannot be told of changes of registered memory and is disconnected: {}",
                       guest.session->peer().engine_id, error.text()));
  guest.session->close("it cannot be told of changes of registered memory");
}

void Guests::added(const RegionDesc& region) {
  MutexLock lock(mutex_);
  // Others may have told of it already, or taken it back.
  if (!registry_.table()->live(region.key)) return;
  for (auto& [id, guest] : guests_) {
    if (!concerns(*guest, region) || !follows(*guest) || guest->regions.contains(region.key)) continue;
    std::vector<RegionDesc> news = {region};
    if (auto told = tell_added(*guest, news); !told.ok()) give_up(*guest, told.error());
  }
}

void Guests::dropped(RegionKey key) {
  MutexLock lock(mutex_);
  for (auto& [id, guest] : guests_) {
    if (!follows(*guest) || !guest->regions.contains(key)) continue;
    std::vector<RegionKey> gone = {key};
    if (auto told = tell_dropped(*guest, gone); !told.ok()) give_up(*guest, told.error());
  }
}

void Guests::on_lost(const std::shared_ptr<Session>& session) {
  MutexLock lock(mutex_);
  const auto guest = guests_.extract(session->id());
  if (guest.empty() || !guest.mapped()->leases) return;
  // It may live on, and be in the middle of a write.
  guest.mapped()->leases->revoke();
  departed_.push_back(guest.mapped());
  forget_departed();
}

void Guests::forget_departed() {
  std::erase_if(departed_, [](const auto& guest) { return guest->leases->idle() || guest->session->process_ended(); });
}

void Guests::on_table_request(const std::shared_ptr<Session>& session, const TableRequest& request) {
  MutexLock lock(mutex_);
  const auto at = guests_.find(session->id());
  if (at == guests_.end()) return;
  // The answer to the newest question answers those before it.
  auto& guest = *at->second;
  guest.asked = request.tag;
  if (!follows(guest)) return;
  if (auto told = answer(guest); !told.ok()) give_up(guest, told.error());
}

bool Guests::leases_clear(RegionKey key, Deadline deadline) {
  std::vector<std::shared_ptr<Guest>> writers;
  {
    MutexLock lock(mutex_);
    forget_departed();
    writers = departed_;
    for (const auto& [id, guest] : guests_)
      if (guest->leases) writers.push_back(guest);
  }
  return std::all_of(writers.begin(), writers.end(), [&](const auto& guest) {
    return guest->leases->wait_clear(key, [&] { return guest->session->process_ended(); }, deadline);
  });
}

std::size_t Guests::count() {
  MutexLock lock(mutex_);
  return guests_.size();
}

}  // namespace onesided
