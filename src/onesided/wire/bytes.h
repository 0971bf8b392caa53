// The writer and the reader of all messages. With them no decoder reads past its input, trusts a count, or depends on
// the processor's byte order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onesided/base/result.h"

namespace onesided {

using ByteSpan = std::span<const std::uint8_t>;

// Appends little-endian integers and length-prefixed strings. A value.
class ByteWriter {
 public:
  void u8(std::uint8_t value) { bytes_.push_back(value); }
  void u16(std::uint16_t value) { integer(value); }
  void u32(std::uint32_t value) { integer(value); }
  void u64(std::uint64_t value) { integer(value); }
  void raw(ByteSpan bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void string(std::string_view text) {
    u32(static_cast<std::uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  // LEB128, at most 10 bytes.
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) u8(static_cast<std::uint8_t>(value) | 0x80);
    u8(static_cast<std::uint8_t>(value));
  }
  std::size_t size() const { return bytes_.size(); }
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  template <typename T>
  void integer(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) u8(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  std::vector<std::uint8_t> bytes_;
};

// Reads the output of ByteWriter. After the first read past the end, or after fail(), all values read as zero and
// finish() returns the error: a decoder checks once, at the end and before it allocates. A value; the bytes must
// outlive it.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  std::uint8_t u8(const char* what) { return integer<std::uint8_t>(what); }
  std::uint16_t u16(const char* what) { return integer<std::uint16_t>(what); }
  std::uint32_t u32(const char* what) { return integer<std::uint32_t>(what); }
  std::uint64_t u64(const char* what) { return integer<std::uint64_t>(what); }
  // 0 or 1; anything else fails.
  bool boolean(const char* what) {
    const auto value = u8(what);
    if (value > 1) fail(what);
    return value == 1;
  }
  // Only the shortest encoding of a value is accepted.
  std::uint64_t varint(const char* what);
  ByteSpan raw(std::size_t nbytes, const char* what);
  template <std::size_t N>
  std::array<std::uint8_t, N> array(const char* what) {
    std::array<std::uint8_t, N> out{};
    const auto part = raw(N, what);
    std::copy(part.begin(), part.end(), out.begin());
    return out;
  }
  std::string string(std::size_t max_bytes, const char* what);
  // A count of elements of at least min_bytes each. Fails if the remaining bytes cannot contain them, so a vector of
  // this size may be reserved.
  std::size_t count(std::size_t min_bytes, const char* what);

  std::size_t left() const { return bytes_.size(); }
  bool failed() const { return failed_ != nullptr; }
  // Only the first failure is kept. `what` must be a literal.
  void fail(const char* what);
  // Success if nothing failed and no bytes are left. PARAM_INVALID otherwise, with `message` and the field.
  Result<void> finish(const char* message) const;

 private:
  template <typename T>
  T integer(const char* what) {
    const auto part = raw(sizeof(T), what);
    T value = 0;
    for (std::size_t i = 0; i < part.size(); ++i) value = static_cast<T>(value | (static_cast<T>(part[i]) << (8 * i)));
    return value;
  }

  ByteSpan bytes_;
  const char* failed_ = nullptr;
};

}  // namespace onesided
