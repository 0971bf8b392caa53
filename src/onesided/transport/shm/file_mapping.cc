#include "onesided/transport/shm/file_mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace onesided {

Result<std::shared_ptr<FileMapping>> FileMapping::create(const Fd& file) {
  struct stat info{};
  if (::fstat(file.get(), &info) != 0 || info.st_size <= 0)
    return Error(Status::kParamInvalid, "the peer passed a file without contents");
  const auto nbytes = static_cast<std::size_t>(info.st_size);
  void* base = ::mmap(nullptr, nbytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED)
    return Error(Status::kResourceExhausted,
                 fmt::format("cannot map {} bytes of the peer's memory: {}", nbytes, std::strerror(errno)));
  return std::shared_ptr<FileMapping>(new FileMapping(static_cast<char*>(base), nbytes));
}

FileMapping::~FileMapping() { ::munmap(base_, nbytes_); }

Result<char*> FileMapping::at(std::uint64_t offset, std::uint64_t nbytes, Op op) {
  if (!range_within(offset, nbytes, 0, nbytes_))
    return Error(Status::kParamInvalid,
                 fmt::format("the peer's file has {} bytes; {} at {:#x} are not in it", nbytes_, nbytes, offset));
  if (op == Op::kWrite && !writable_.load(std::memory_order_acquire)) ONESIDED_TRY(make_writable());
  return base_ + offset;
}

Result<void> FileMapping::make_writable() {
  MutexLock lock(mutex_);
  if (::mprotect(base_, nbytes_, PROT_READ | PROT_WRITE) != 0)
    return Error(Status::kUnsupported,
                 fmt::format("the peer's memory cannot be mapped for writing: {}", std::strerror(errno)));
  writable_.store(true, std::memory_order_release);
  return {};
}

}  // namespace onesided
