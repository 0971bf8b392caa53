#include "onesided/wire/bytes.h"

#include <fmt/core.h>

namespace onesided {

ByteSpan ByteReader::raw(std::size_t nbytes, const char* what) {
  if (failed_ != nullptr) return {};
  if (nbytes > bytes_.size()) {
    fail(what);
    return {};
  }
  const auto part = bytes_.first(nbytes);
  bytes_ = bytes_.subspan(nbytes);
  return part;
}

std::uint64_t ByteReader::varint(const char* what) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = u8(what);
    if (failed()) return 0;
    const std::uint64_t bits = byte & 0x7f;
    const bool overflow = shift == 63 && bits > 1;
    const bool padded = shift > 0 && byte == 0;
    if (overflow || padded) break;
    value |= bits << shift;
    if (byte < 0x80) return value;
  }
  fail(what);
  return 0;
}

std::string ByteReader::string(std::size_t max_bytes, const char* what) {
  const std::size_t size = u32(what);
  if (size > max_bytes) fail(what);
  const auto part = raw(size, what);
  return std::string(reinterpret_cast<const char*>(part.data()), part.size());
}

std::size_t ByteReader::count(std::size_t min_bytes, const char* what) {
  const std::size_t value = u32(what);
  if (value > bytes_.size() / min_bytes) {
    fail(what);
    return 0;
  }
  return failed() ? 0 : value;
}

void ByteReader::fail(const char* what) {
  if (failed_ == nullptr) failed_ = what;
  bytes_ = {};
}

Result<void> ByteReader::finish(const char* message) const {
  if (failed_ != nullptr) {
    return Error(Status::kParamInvalid, fmt::format("{}: field '{}' is truncated or out of range", message, failed_));
  }
  if (!bytes_.empty())
    return Error(Status::kParamInvalid, fmt::format("{}: {} bytes more than expected", message, bytes_.size()));
  return {};
}

}  // namespace onesided
