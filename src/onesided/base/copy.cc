#include "onesided/base/copy.h"

#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace onesided {

#if defined(__x86_64__)
namespace {

// From this size on, non-temporal stores are faster than memcpy, because the target is not read before it is written.
// Measured with bench/transfer; smaller copies stay in the second-level cache.
constexpr std::uint64_t kAroundCacheBytes = 512 * 1024;

__attribute__((target("avx2"))) void copy_around_cache(char* to, const char* from, std::uint64_t nbytes) {
  // Non-temporal stores need whole vectors at aligned addresses.
  const std::uint64_t head = std::min<std::uint64_t>(nbytes, (32 - reinterpret_cast<std::uintptr_t>(to) % 32) % 32);
  std::memcpy(to, from, head);
  to += head;
  from += head;
  nbytes -= head;
  for (; nbytes >= 128; nbytes -= 128, from += 128, to += 128) {
    const auto* source = reinterpret_cast<const __m256i*>(from);
    auto* target = reinterpret_cast<__m256i*>(to);
    const __m256i a = _mm256_loadu_si256(source), b = _mm256_loadu_si256(source + 1);
    const __m256i c = _mm256_loadu_si256(source + 2), d = _mm256_loadu_si256(source + 3);
    _mm256_stream_si256(target, a);
    _mm256_stream_si256(target + 1, b);
    _mm256_stream_si256(target + 2, c);
    _mm256_stream_si256(target + 3, d);
  }
  // The fence orders them with other stores.
  _mm_sfence();
  std::memcpy(to, from, nbytes);
}

const bool has_avx2 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}();

}  // namespace

void copy_bytes(void* to, const void* from, std::uint64_t nbytes) {
  if (nbytes >= kAroundCacheBytes && has_avx2)
    copy_around_cache(static_cast<char*>(to), static_cast<const char*>(from), nbytes);
  else
    std::memcpy(to, from, nbytes);
}
#else
void copy_bytes(void* to, const void* from, std::uint64_t nbytes) { std::memcpy(to, from, nbytes); }
#endif

}  // namespace onesided
