#include "onesided/device/host/host_mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "onesided/base/align.h"

namespace onesided {
namespace {

Error out_of_memory(std::string_view what, std::uint64_t nbytes) {
  return {Status::kResourceExhausted,
          fmt::format("{} of {} bytes of host memory: {}", what, nbytes, std::strerror(errno))};
}

}  // namespace

Result<void*> map_aligned(std::uint64_t nbytes, std::uint64_t alignment, const Fd& file) {
  // Reserves enough to contain an aligned start, maps the memory there, and unmaps the rest.
  const auto reserved_bytes = checked_add(nbytes, alignment);
  if (!reserved_bytes)
    return Error{Status::kResourceExhausted, fmt::format("{} bytes do not fit an address space", nbytes)};
  void* reserved = ::mmap(nullptr, *reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return out_of_memory("reservation", nbytes);
  const auto start = reinterpret_cast<std::uintptr_t>(reserved);
  const std::uint64_t begin = *align_up(start, alignment);
  const std::uint64_t end = begin + nbytes;
  const int flags = file.valid() ? MAP_SHARED | MAP_FIXED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  void* mapped = ::mmap(reinterpret_cast<void*>(begin), nbytes, PROT_READ | PROT_WRITE, flags, file.get(), 0);
  if (mapped == MAP_FAILED) {
    const Error error = out_of_memory("mapping", nbytes);
    ::munmap(reserved, *reserved_bytes);
    return error;
  }
  if (begin > start) ::munmap(reserved, begin - start);
  if (start + *reserved_bytes > end) ::munmap(reinterpret_cast<void*>(end), start + *reserved_bytes - end);
  // Optional: fewer page faults and TLB misses if the kernel grants huge pages.
  if (is_aligned(begin, 2 * kMiB) && nbytes >= 2 * kMiB) (void)::madvise(mapped, nbytes, MADV_HUGEPAGE);
  return mapped;
}

void unmap(void* base, std::uint64_t nbytes) {
  ONESIDED_CHECK(::munmap(base, nbytes) == 0, "munmap({}, {}): {}", base, nbytes, std::strerror(errno));
}

Result<Fd> create_sealed_memfd(std::uint64_t nbytes) {
  Fd file(::memfd_create("onesided", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return out_of_memory("memfd", nbytes);
  if (::ftruncate(file.get(), static_cast<off_t>(nbytes)) != 0) return out_of_memory("memfd", nbytes);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return out_of_memory("seal", nbytes);
  return file;
}

std::uint64_t host_total_bytes() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t host_available_bytes() {
  std::uint64_t kib = 0;
  if (std::FILE* file = std::fopen("/proc/meminfo", "re")) {
    char line[128];
    unsigned long long value = 0;
    while (std::fgets(line, sizeof line, file)) {
      if (std::sscanf(line, "MemAvailable: %llu kB", &value) == 1) kib = value;
    }
    std::fclose(file);
  }
  return kib * kKiB;
}

}  // namespace onesided
