#include "onesided/node/exchange/object_desc.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "onesided/base/align.h"

namespace onesided {
namespace {

constexpr std::string_view kMagic = "OSRO";
constexpr std::uint8_t kVersion = 1;

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

Error bad(std::string_view what) { return {Status::kParamInvalid, fmt::format("description of an object: {}", what)}; }

// Reads the bytes from the front. A value.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return std::nullopt;
      const auto byte = static_cast<std::uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      const std::uint64_t bits = byte & 0x7f;
      if (shift == 63 && bits > 1) return std::nullopt;
      value |= bits << shift;
      if (byte < 0x80) return byte == 0 && shift != 0 ? std::nullopt : std::optional(value);
    }
    return std::nullopt;
  }
  bool starts_with(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace

std::uint64_t TensorDesc::nbytes() const { return std::accumulate(pieces.begin(), pieces.end(), std::uint64_t{0}); }

std::string ObjectDesc::encode() const {
  std::string out(kMagic);
  out.reserve(out.size() + 12 + 8 * tensors.size() + regions.size());
  out.push_back(static_cast<char>(kVersion));
  put_varint(out, tensors.size());
  for (const TensorDesc& tensor : tensors) {
    put_varint(out, tensor.pieces.size() << 1 | (tensor.type == MemType::kDevice ? 1 : 0));
    for (const std::uint64_t nbytes : tensor.pieces) put_varint(out, nbytes);
  }
  out += regions;
  return out;
}

Result<ObjectDesc> ObjectDesc::decode(std::string_view bytes) {
  Reader in(bytes);
  if (!in.starts_with(kMagic)) return bad("does not begin with OSRO; was it made by another transport?");
  if (in.rest().empty()) return bad("ends before its version");
  if (!in.starts_with(std::string_view(reinterpret_cast<const char*>(&kVersion), 1)))
    return bad(fmt::format("has version {}, this build reads version {}; use one release of onesided on all nodes",
                           static_cast<std::uint8_t>(in.rest().front()), kVersion));
  const auto count = in.varint();
  // Each tensor takes at least one byte, so a count above the remaining bytes is invalid; checked before memory is
  // allocated for it.
  if (!count || *count > in.rest().size()) return bad("has an invalid number of tensors");
  ObjectDesc object;
  object.tensors.reserve(*count);
  bool any_piece = false;
  for (std::uint64_t i = 0; i < *count; ++i) {
    const auto head = in.varint();
    if (!head || *head >> 1 > in.rest().size()) return bad(fmt::format("has an invalid head of tensor {}", i));
    TensorDesc tensor{.type = *head & 1 ? MemType::kDevice : MemType::kHost, .pieces = {}};
    tensor.pieces.reserve(*head >> 1);
    std::uint64_t sum = 0;
    for (std::uint64_t piece = 0; piece < *head >> 1; ++piece) {
      const auto nbytes = in.varint();
      const auto total = nbytes ? checked_add(sum, *nbytes) : std::nullopt;
      if (!total || *nbytes == 0) return bad(fmt::format("has an invalid length in piece {} of tensor {}", piece, i));
      sum = *total;
      tensor.pieces.push_back(*nbytes);
      any_piece = true;
    }
    object.tensors.push_back(std::move(tensor));
  }
  if (any_piece == in.rest().empty()) return bad("does not match the engine's description of the regions");
  object.regions = in.rest();
  return object;
}

}  // namespace onesided
