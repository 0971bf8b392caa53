#include "ascend_sim/hccl/peer_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "onesided/base/align.h"
#include "onesided/base/fd.h"

namespace onesided::sim::hccl {
namespace {

std::string path_of(std::int32_t pid, std::int32_t fd) { return fmt::format("/proc/{}/fd/{}", pid, fd); }

}  // namespace

Result<std::shared_ptr<FileView>> FileView::open(std::int32_t pid, std::int32_t fd, std::uint64_t inode,
                                                 bool writable) {
  const std::string path = path_of(pid, fd);
  const Fd file(::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  struct stat info{};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) {
    return Error(Status::kFailed,
                 fmt::format("cannot open {}, memory of a rank on this host: {}", path, std::strerror(errno)));
  }
  if (info.st_ino != inode || info.st_size <= 0) {
    return Error(Status::kNotFound, fmt::format("{} is not the memory that the rank announced; it was freed", path));
  }
  const auto nbytes = static_cast<std::uint64_t>(info.st_size);
  void* base = ::mmap(nullptr, nbytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) {
    return Error(Status::kResourceExhausted,
                 fmt::format("cannot map {} bytes of a rank's memory: {}", nbytes, std::strerror(errno)));
  }
  ::madvise(base, nbytes, MADV_DONTFORK);
  return std::make_shared<FileView>(static_cast<std::byte*>(base), nbytes);
}

FileView::~FileView() { ::munmap(base_, nbytes_); }

PeerFiles& PeerFiles::process() {
  static auto* instance = new PeerFiles;
  return *instance;
}

void PeerFiles::drop_freed() {
  for (auto at = views_.begin(); at != views_.end();) {
    struct stat info{};
    const auto& [pid, fd, inode] = at->first;
    const bool there = ::stat(path_of(pid, fd).c_str(), &info) == 0 && info.st_ino == inode;
    at = there ? std::next(at) : views_.erase(at);
  }
}

Result<std::shared_ptr<FileView>> PeerFiles::view(const Key& key) {
  MutexLock lock(mutex_);
  if (const auto known = views_.find(key); known != views_.end()) return known->second;
  // A mapping keeps memory that its owner has freed. Owners that allocate are the ones that free.
  drop_freed();
  const auto& [pid, fd, inode] = key;
  ONESIDED_TRY_ASSIGN(fresh, FileView::open(pid, fd, inode, false));
  views_.emplace(key, fresh);
  return fresh;
}

Result<const std::byte*> PeerFiles::at(std::int32_t pid, std::int32_t fd, std::uint64_t inode, std::uint64_t offset,
                                       std::uint64_t nbytes, std::shared_ptr<FileView>& keep) {
  ONESIDED_TRY_ASSIGN(mapped, view({pid, fd, inode}));
  if (!range_within(offset, nbytes, 0, mapped->nbytes())) {
    return Error(Status::kParamInvalid, fmt::format("{} bytes at {:#x} are not in a rank's file of {} bytes", nbytes,
                                                    offset, mapped->nbytes()));
  }
  keep = mapped;
  return keep->base() + offset;
}

}  // namespace onesided::sim::hccl
