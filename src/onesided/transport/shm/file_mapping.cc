#include "onesided/transport/shm/file_mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace onesided {

FileMapping::~FileMapping() {
  if (char* base = base_.load(std::memory_order_relaxed)) ::munmap(base, nbytes_);
}

Result<char*> FileMapping::at(std::uint64_t offset, std::uint64_t nbytes, Op op) {
  char* base = base_.load(std::memory_order_acquire);
  if (!base) {
    MutexLock lock(mutex_);
    if (!base_.load(std::memory_order_relaxed)) ONESIDED_TRY(map());
    base = base_.load(std::memory_order_relaxed);
  }
  if (!range_within(offset, nbytes, 0, nbytes_))
    return Error(Status::kParamInvalid,
                 fmt::format("the peer's file has {} bytes; {} at {:#x} are not in it", nbytes_, nbytes, offset));
  if (op == Op::kWrite && !writable_.load(std::memory_order_acquire)) ONESIDED_TRY(make_writable());
  return base + offset;
}

Result<void> FileMapping::map() {
  struct stat info{};
  if (::fstat(file_.get(), &info) != 0 || info.st_size <= 0)
    return Error(Status::kParamInvalid, "the peer passed a file without contents");
  void* base = ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_SHARED, file_.get(), 0);
  if (base == MAP_FAILED)
    return Error(Status::kResourceExhausted,
                 fmt::format("cannot map {} bytes of the peer's memory: {}", info.st_size, std::strerror(errno)));
  nbytes_ = static_cast<std::uint64_t>(info.st_size);
  file_.reset();
  base_.store(static_cast<char*>(base), std::memory_order_release);
  return {};
}

Result<void> FileMapping::make_writable() {
  MutexLock lock(mutex_);
  if (::mprotect(base_.load(std::memory_order_relaxed), nbytes_, PROT_READ | PROT_WRITE) != 0)
    return Error(Status::kUnsupported,
                 fmt::format("the peer's memory cannot be mapped for writing: {}", std::strerror(errno)));
  writable_.store(true, std::memory_order_release);
  return {};
}

}  // namespace onesided
