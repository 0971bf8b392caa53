#include "ascend_sim/acl/memory.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ascend_sim/acl/address_space.h"
#include "ascend_sim/acl/runtime.h"
#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

// Each allocation is a file of its own, so that exporting one shows a peer nothing else. A desktop's soft limit of 1024
// open files would be reached before 8 GiB in 2 MiB pieces; the hard limit is what the administrator meant.
bool raise_open_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace

Result<Fd> make_memory_file(std::uint64_t nbytes) {
  int fd = ::memfd_create("onesided_sim_memory", MFD_CLOEXEC);
  if (fd < 0 && errno == EMFILE && raise_open_file_limit()) fd = ::memfd_create("onesided_sim_memory", MFD_CLOEXEC);
  if (fd < 0) {
    return Error{Status::kResourceExhausted,
                 fmt::format("no file for device memory: {}{}", std::strerror(errno),
                             errno == EMFILE ? "; raise the limit of open files (ulimit -n)" : "")};
  }
  Fd file(fd);
  if (::ftruncate(fd, static_cast<off_t>(nbytes)) != 0) {
    return Error{Status::kResourceExhausted, fmt::format("no file of {} bytes: {}", nbytes, std::strerror(errno))};
  }
  return file;
}

Backing::Backing(Fd file, std::uint64_t nbytes, int physical_device)
    : file_(std::move(file)), nbytes_(nbytes), physical_device_(physical_device) {
  struct stat status{};
  if (::fstat(file_.get(), &status) == 0) inode_ = status.st_ino;
}

Backing::~Backing() {
  if (physical_device_ >= 0) runtime().refund(physical_device_, nbytes_);
}

Mapping::~Mapping() {
  if (owned_bytes) AddressSpace::release(reinterpret_cast<void*>(owned_base), owned_bytes);
}

void MemoryTable::add(MappingPtr mapping) {
  MutexLock lock(mutex_);
  const std::uint64_t base = mapping->base;
  by_base_[base] = std::move(mapping);
}

MappingPtr MemoryTable::find_locked(std::uint64_t address) const {
  auto at = by_base_.upper_bound(address);
  if (at == by_base_.begin()) return nullptr;
  --at;
  return address - at->first < at->second->nbytes ? at->second : nullptr;
}

MappingPtr MemoryTable::find(const void* address) const {
  MutexLock lock(mutex_);
  return find_locked(reinterpret_cast<std::uint64_t>(address));
}

MappingPtr MemoryTable::remove(const void* base, MemoryKind kind) {
  MutexLock lock(mutex_);
  const auto at = by_base_.find(reinterpret_cast<std::uint64_t>(base));
  if (at == by_base_.end() || at->second->kind != kind) return nullptr;
  MappingPtr removed = std::move(at->second);
  by_base_.erase(at);
  return removed;
}

std::vector<MappingPtr> MemoryTable::cover(const void* address, std::uint64_t nbytes) const {
  auto at = reinterpret_cast<std::uint64_t>(address);
  const auto end = checked_add(at, nbytes);
  std::vector<MappingPtr> pieces;
  if (!end) return pieces;
  MutexLock lock(mutex_);
  do {
    MappingPtr piece = find_locked(at);
    if (!piece || (!pieces.empty() && piece->device != pieces.front()->device)) return {};
    at = piece->base + piece->nbytes;
    pieces.push_back(std::move(piece));
  } while (at < *end);
  return pieces;
}

bool MemoryTable::occupied(std::uint64_t base, std::uint64_t nbytes) const {
  MutexLock lock(mutex_);
  const auto at = by_base_.lower_bound(base);
  if (at != by_base_.end() && at->first - base < nbytes) return true;
  return find_locked(base) != nullptr;
}

}  // namespace onesided::sim
