#include "ascend_sim/acl/address_space.h"

#include <sys/mman.h>

#include <algorithm>

#include "onesided/base/align.h"

namespace onesided::sim {
namespace {

// A window that ordinary programs leave alone. Where it is not available (small address spaces, thread sanitizer) the
// kernel chooses; then order is no longer promised.
#if defined(__SANITIZE_THREAD__)
constexpr bool kHasWindow = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kHasWindow = false;
#else
constexpr bool kHasWindow = true;
#endif
#else
constexpr bool kHasWindow = true;
#endif
constexpr std::uint64_t kWindowBegin = 0x2000'0000'0000;
constexpr std::uint64_t kWindowEnd = 0x4000'0000'0000;
constexpr int kAttempts = 64;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* map_at(std::uint64_t address, std::uint64_t nbytes) {
  void* wanted = reinterpret_cast<void*>(address);
  void* got = ::mmap(wanted, nbytes, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  if (got == wanted) return got;
  ::munmap(got, nbytes);  // a kernel older than MAP_FIXED_NOREPLACE took it as a hint
  return nullptr;
}

void* map_anywhere(std::uint64_t nbytes, std::uint64_t alignment) {
  const auto total = checked_add(nbytes, alignment);
  if (!total) return nullptr;
  void* got = ::mmap(nullptr, *total, PROT_NONE, kFlags, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uint64_t>(got);
  const std::uint64_t base = *align_up(start, alignment);
  if (base > start) ::munmap(got, base - start);
  if (const std::uint64_t tail = start + *total - (base + nbytes))
    ::munmap(reinterpret_cast<void*>(base + nbytes), tail);
  return reinterpret_cast<void*>(base);
}

}  // namespace

void* AddressSpace::reserve(std::uint64_t nbytes, std::uint64_t alignment, void* wanted) {
  alignment = std::max(alignment, kAscendPageBytes);
  const auto length = align_up(nbytes, 4 * kKiB);
  if (!length || *length == 0 || *length > kWindowEnd - kWindowBegin) return nullptr;
  if (wanted) {
    if (!is_aligned(reinterpret_cast<std::uint64_t>(wanted), alignment)) return nullptr;
    return map_at(reinterpret_cast<std::uint64_t>(wanted), *length);
  }
  if (!kHasWindow) return map_anywhere(*length, alignment);
  MutexLock lock(mutex_);
  if (next_ == 0) next_ = kWindowBegin;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::uint64_t base = *align_up(next_, alignment);
    if (base > kWindowEnd - *length) base = *align_up(kWindowBegin, alignment);  // once around: reuse what was freed
    next_ = *align_up(base + *length, kAscendPageBytes) + kAscendPageBytes;
    if (void* got = map_at(base, *length)) return got;
  }
  return map_anywhere(*length, alignment);
}

void AddressSpace::release(void* base, std::uint64_t nbytes) { ::munmap(base, *align_up(nbytes, 4 * kKiB)); }

}  // namespace onesided::sim
