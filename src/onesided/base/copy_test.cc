#include "onesided/base/copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace onesided {
namespace {

TEST(CopyBytes, CopiesEverySizeAtEveryAlignmentAndNoByteMore) {
  constexpr std::uint64_t kMost = (2 << 20) + 300;
  std::vector<unsigned char> from(kMost + 64), to(kMost + 128);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 131 + (i >> 8));
  for (const std::uint64_t nbytes :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{127}, std::uint64_t{4096}, std::uint64_t{(512 << 10) - 1},
        std::uint64_t{512 << 10}, std::uint64_t{(512 << 10) + 1}, std::uint64_t{(1 << 20) + 77},
        std::uint64_t{2 << 20}}) {
    for (std::uint64_t skew = 0; skew < 33; skew += 8 + nbytes % 3) {
      std::fill(to.begin(), to.end(), 0xA5);
      copy_bytes(to.data() + 32 + skew, from.data() + skew / 2, nbytes);
      ASSERT_EQ(0, std::memcmp(to.data() + 32 + skew, from.data() + skew / 2, nbytes)) << nbytes << " " << skew;
      ASSERT_EQ(0xA5, to[31 + skew]);
      ASSERT_EQ(0xA5, to[32 + skew + nbytes]);
    }
  }
}

}  // namespace
}  // namespace onesided
