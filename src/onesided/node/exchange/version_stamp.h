// A version stamp for memory that one-sided readers copy while its owner may be writing it. The stamp is odd during a
// write. A copy is complete if the stamp was the same even number before and after it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace onesided {

// A sequence lock that remote peers read. One writer at a time; any thread may call version(). Its address is fixed
// while it is registered. It has two words, one the complement of the other, because a copy may be torn between bytes.
class VersionStamp {
 public:
  static constexpr std::uint64_t kBytes = 16;
  using Words = std::array<std::atomic<std::uint64_t>, 2>;

  VersionStamp() { write(0); }
  VersionStamp(const VersionStamp&) = delete;
  VersionStamp& operator=(const VersionStamp&) = delete;

  void begin() {
    write(words_[0].load(std::memory_order_relaxed) | 1);
    // The stamp becomes odd before the first byte of the memory changes.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  std::uint64_t end() {
    // Every byte of the memory has changed before the stamp becomes even.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    write((words_[0].load(std::memory_order_relaxed) | 1) + 1);
    return version();
  }
  // The number of calls of end().
  std::uint64_t version() const { return words_[0].load(std::memory_order_acquire) / 2; }
  const Words& words() const { return words_; }

  // The version in a copy of words(), or std::nullopt: being written, torn, or not a stamp.
  static std::optional<std::uint64_t> parse(std::string_view copy) {
    if (copy.size() != kBytes) return std::nullopt;
    std::array<std::uint64_t, 2> words;
    std::memcpy(words.data(), copy.data(), kBytes);
    if (words[0] != ~words[1] || words[0] % 2 == 1) return std::nullopt;
    return words[0] / 2;
  }

 private:
  void write(std::uint64_t sequence) {
    words_[0].store(sequence, std::memory_order_release);
    words_[1].store(~sequence, std::memory_order_release);
  }

  alignas(64) Words words_;
};
static_assert(sizeof(VersionStamp::Words) == VersionStamp::kBytes);

}  // namespace onesided
