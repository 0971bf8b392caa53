#include "onesided/engine/region_files.h"

#include <sys/stat.h>

#include <algorithm>

namespace onesided {

std::vector<FilePiece> RegionFiles::pin(Device& device, std::uint64_t address, std::uint64_t nbytes) {
  std::vector<FilePiece> pieces;
  for (std::uint64_t done = 0; done < nbytes;) {
    const std::uint64_t at = address + done;
    auto exported = device.export_memory(reinterpret_cast<const void*>(at));
    // If one part has no file, peers cannot map the region, because a partly mapped region is useless.
    if (!exported.ok() || !exported->file.valid() || at < exported->base || at - exported->base >= exported->nbytes) {
      unpin(pieces);
      return {};
    }
    const std::uint64_t skip = at - exported->base;
    FilePiece piece;
    piece.file_offset = exported->file_offset + skip;
    piece.region_offset = done;
    piece.nbytes = std::min(exported->nbytes - skip, nbytes - done);
    done += piece.nbytes;
    MutexLock lock(mutex_);
    piece.file_id = pin_file(std::move(exported->file));
    pieces.push_back(piece);
  }
  return pieces;
}

std::uint64_t RegionFiles::pin_file(Fd file) {
  struct stat info{};
  ::fstat(file.get(), &info);
  const std::pair identity(info.st_dev, info.st_ino);
  auto [known, fresh] = ids_.try_emplace(identity, next_id_);
  if (fresh) files_[next_id_++] = Entry{std::move(file), identity, 0};
  ++files_[known->second].pins;
  return known->second;
}

void RegionFiles::unpin(const std::vector<FilePiece>& pieces) {
  MutexLock lock(mutex_);
  unpin_locked(pieces);
}

void RegionFiles::unpin_locked(const std::vector<FilePiece>& pieces) {
  for (const auto& piece : pieces) {
    const auto at = files_.find(piece.file_id);
    ONESIDED_CHECK(at != files_.end(), "file {} is not pinned", piece.file_id);
    if (--at->second.pins > 0) continue;
    ids_.erase(at->second.identity);
    files_.erase(at);
  }
}

Fd RegionFiles::duplicate(std::uint64_t file_id) {
  MutexLock lock(mutex_);
  const auto at = files_.find(file_id);
  return at == files_.end() ? Fd() : at->second.file.duplicate();
}

}  // namespace onesided
