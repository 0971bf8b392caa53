#include "onesided/transport/shm/shm_link.h"

#include <fmt/format.h>

#include <algorithm>

#include "onesided/base/copy.h"
#include "onesided/base/log.h"

namespace onesided {

bool ShmLink::carries(const RegionTraits& traits) const {
  if (!traits.exported) return false;
  MutexLock lock(mutex_);
  return regions_.contains(traits.key);
}

void ShmLink::share_file(std::uint64_t file_id, const Fd& file) {
  auto mapping = FileMapping::create(file);
  // A region in a file that is not mapped is not carried; another transport is used.
  if (!mapping) return log_line(LogLevel::kWarn, fmt::format("shm: {}", mapping.error().text()));
  MutexLock lock(mutex_);
  files_[file_id] = File{std::move(*mapping), 0};
}

void ShmLink::share_region(const RegionDesc& desc) {
  auto region = std::make_shared<Region>();
  region->address = desc.address;
  region->nbytes = desc.nbytes;
  std::uint64_t covered = 0;
  MutexLock lock(mutex_);
  for (const auto& piece : desc.pieces) {
    const auto file = files_.find(piece.file_id);
    // If the peer's description is invalid, the memory counts as not exported.
    if (file == files_.end() || piece.region_offset != covered || piece.nbytes == 0) return;
    region->pieces.push_back({desc.address + covered, piece.nbytes, piece.file_offset, file->second.mapping});
    region->file_ids.push_back(piece.file_id);
    covered += piece.nbytes;
  }
  if (covered != desc.nbytes || regions_.contains(desc.key)) return;
  for (const auto file_id : region->file_ids) ++files_[file_id].regions;
  regions_[desc.key] = std::move(region);
}

void ShmLink::unshare_region(RegionKey key) {
  std::vector<std::shared_ptr<FileMapping>> unused;  // unmapped after the lock is released
  std::shared_ptr<const Region> region;
  MutexLock lock(mutex_);
  const auto at = regions_.find(key);
  if (at == regions_.end()) return;
  region = std::move(at->second);
  regions_.erase(at);
  for (const auto file_id : region->file_ids) {
    const auto file = files_.find(file_id);
    if (file == files_.end() || --file->second.regions > 0) continue;
    unused.push_back(std::move(file->second.mapping));
    files_.erase(file);
  }
  lock.unlock();
}

std::shared_ptr<const ShmLink::Region> ShmLink::find(RegionKey key) const {
  MutexLock lock(mutex_);
  const auto at = regions_.find(key);
  return at == regions_.end() ? nullptr : at->second;
}

std::optional<CopyLink::Failure> ShmLink::copy(Op op, std::span<const Move> moves) {
  std::shared_ptr<const Region> region;
  RegionKey key;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    if (!region || key != moves[i].region) {
      key = moves[i].region;
      region = find(key);
      if (!region)
        return Failure{i, 0,
                       Error(Status::kStale, fmt::format("region {}.{} was deregistered", key.index, key.generation))};
    }
    std::uint64_t done = 0;
    if (auto copied = copy_one(op, *region, moves[i], done); !copied.ok()) return Failure{i, done, copied.error()};
  }
  return std::nullopt;
}

Result<void> ShmLink::copy_one(Op op, const Region& region, const Move& move, std::uint64_t& done) {
  // The engine has checked the peer's table, but the peer's data about its files could differ from the table.
  if (!range_within(move.remote, move.nbytes, region.address, region.nbytes))
    return Error(Status::kFailed, fmt::format("the peer exported {} bytes at {:#x}; {:#x} + {} is not in them",
                                              region.nbytes, region.address, move.remote, move.nbytes));
  const auto& pieces = region.pieces;
  auto piece = pieces.begin();
  if (pieces.size() > 1)
    piece = std::prev(std::upper_bound(pieces.begin(), pieces.end(), move.remote,
                                       [](std::uint64_t value, const Piece& p) { return value < p.address; }));
  while (done < move.nbytes) {
    const std::uint64_t skip = move.remote + done - piece->address;
    const std::uint64_t step = std::min(move.nbytes - done, piece->nbytes - skip);
    ONESIDED_TRY_ASSIGN(remote, piece->mapping->at(piece->file_offset + skip, step, op));
    auto* local = reinterpret_cast<char*>(move.local + done);
    if (move.device) {
      ONESIDED_TRY(op == Op::kRead ? move.device->copy_from_host(local, remote, step)
                                   : move.device->copy_to_host(remote, local, step));
    } else {
      op == Op::kRead ? copy_bytes(local, remote, step) : copy_bytes(remote, local, step);
    }
    done += step;
    ++piece;
  }
  return {};
}

}  // namespace onesided
