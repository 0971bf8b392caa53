#include "onesided/engine/guests.h"

#include <fmt/format.h>

#include <algorithm>

#include "onesided/base/log.h"

namespace onesided {
namespace {

Deadline at_once() { return Deadline::after_ms(std::int64_t{0}); }

}  // namespace

Result<void> Guests::on_accepted(const std::shared_ptr<Session>& session) {
  auto guest = std::make_shared<Guest>();
  guest->session = session;
  if (session->peer().local) {
    ONESIDED_TRY_ASSIGN(leases, LeasePage::create());
    guest->leases = std::move(leases);
  }
  MutexLock lock(mutex_);
  // Known first, then told: whatever changes from here on reaches it as a change.
  guests_[session->id()] = guest;
  auto introduced = introduce(*guest);
  if (!introduced.ok()) guests_.erase(session->id());
  return introduced;
}

Result<void> Guests::introduce(Guest& guest) {
  if (guest.leases) {
    std::vector<Fd> fds;
    fds.push_back(registry_.table()->file().duplicate());
    fds.push_back(guest.leases->file().duplicate());
    if (!fds[0].valid() || !fds[1].valid())
      return Error(Status::kResourceExhausted, "the owner has no file descriptors left for another peer");
    ONESIDED_TRY(
        guest.session->send(TableOffer{registry_.table()->nbytes(), 0, LeasePage::kBytes}, std::move(fds), at_once()));
  }
  return send_regions(guest, registry_.snapshot(), true);
}

Result<void> Guests::send_regions(Guest& guest, std::vector<RegionDesc> regions, bool complete) {
  // A local guest reads the table itself; it needs to hear of what it can map only.
  if (guest.leases) std::erase_if(regions, [](const RegionDesc& region) { return region.pieces.empty(); });
  if (guest.leases) {
    ONESIDED_TRY(send_files(guest, regions));
  } else {
    for (auto& region : regions) region.pieces.clear();
  }
  if (regions.empty() && !complete) return {};
  RegionUpdate update;
  update.epoch = ++guest.epoch;
  update.complete = complete;
  update.added = std::move(regions);
  return guest.session->send(update, {}, at_once());
}

Result<void> Guests::send_files(Guest& guest, const std::vector<RegionDesc>& regions) {
  RegionUpdate update;
  std::vector<Fd> fds;
  auto flush = [&]() -> Result<void> {
    if (fds.empty()) return {};
    update.epoch = ++guest.epoch;
    auto sent = guest.session->send(update, std::move(fds), at_once());
    update.file_ids.clear();
    fds.clear();
    return sent;
  };
  for (const auto& region : regions) {
    if (guest.regions.contains(region.key)) continue;
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
      if (fds.size() == kMaxAttachedFds) ONESIDED_TRY(flush());
    }
  }
  return flush();
}

void Guests::forget_region(Guest& guest, RegionKey key) {
  const auto region = guest.regions.find(key);
  if (region == guest.regions.end()) return;
  const auto files = std::move(region->second);
  guest.regions.erase(region);
  for (const auto file : files)
    if (--guest.files[file] == 0) guest.files.erase(file);
}

void Guests::give_up(Guest& guest, const Error& error) {
  log_line(LogLevel::kWarn, fmt::format("peer {} does not follow changes of registered memory and is disconnected: {}",
                                        guest.session->peer().engine_id, error.text()));
  guest.session->close("it did not read what it was told about registered memory");
}

void Guests::added(const RegionDesc& region) {
  MutexLock lock(mutex_);
  for (auto& [id, guest] : guests_)
    if (auto sent = send_regions(*guest, {region}, false); !sent.ok() && guest->session->alive())
      give_up(*guest, sent.error());
}

void Guests::dropped(RegionKey key) {
  MutexLock lock(mutex_);
  for (auto& [id, guest] : guests_) {
    if (guest->leases && !guest->regions.contains(key)) continue;
    forget_region(*guest, key);
    RegionUpdate update;
    update.epoch = ++guest->epoch;
    update.dropped = {key};
    if (auto sent = guest->session->send(update, {}, at_once()); !sent.ok() && guest->session->alive())
      give_up(*guest, sent.error());
  }
}

void Guests::on_lost(const std::shared_ptr<Session>& session) {
  MutexLock lock(mutex_);
  const auto at = guests_.find(session->id());
  if (at == guests_.end()) return;
  const auto guest = at->second;
  guests_.erase(at);
  lock.unlock();
  guest->alive.store(false, std::memory_order_seq_cst);
  if (guest->leases) guest->leases->wake();
}

void Guests::on_table_request(const std::shared_ptr<Session>& session, const TableRequest& request) {
  MutexLock lock(mutex_);
  const auto at = guests_.find(session->id());
  if (at == guests_.end()) return;
  auto sent = send_regions(*at->second, registry_.snapshot(), true);
  if (sent.ok()) sent = session->send(TableSynced{request.tag}, {}, at_once());
  if (!sent.ok() && session->alive()) give_up(*at->second, sent.error());
}

void Guests::on_file_request(const std::shared_ptr<Session>& session, const FileRequest& request) {
  FileReply reply;
  reply.tag = request.tag;
  std::vector<Fd> fds;
  for (const auto file_id : request.file_ids) {
    Fd fd = fds.size() < kMaxAttachedFds ? registry_.files().duplicate(file_id) : Fd();
    (fd.valid() ? reply.file_ids : reply.gone).push_back(file_id);
    if (fd.valid()) fds.push_back(std::move(fd));
  }
  (void)session->send(reply, std::move(fds), at_once());
}

bool Guests::leases_clear(RegionKey key, Deadline deadline) {
  std::vector<std::shared_ptr<Guest>> writers;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, guest] : guests_)
      if (guest->leases) writers.push_back(guest);
  }
  return std::all_of(writers.begin(), writers.end(),
                     [&](const auto& guest) { return guest->leases->wait_clear(key, guest->alive, deadline); });
}

std::size_t Guests::count() {
  MutexLock lock(mutex_);
  return guests_.size();
}

}  // namespace onesided
