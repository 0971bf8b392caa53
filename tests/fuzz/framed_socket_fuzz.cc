// The bytes of a control connection, cut into reads at any place, before and after it is sealed: frames or an
// error, and never a frame that was not sealed where a seal is due.
#include <sys/socket.h>

#include "fuzz_target.h"
#include "onesided/base/check.h"
#include "onesided/engine/framed_socket.h"
#include "onesided/wire/control.h"

namespace onesided {
namespace {

// The first byte says how: bit 0 sealed, bit 1 control frames, the rest the length of the first piece.
void check(std::span<const std::uint8_t> input) {
  if (input.empty()) return;
  const std::uint8_t how = input[0];
  input = input.subspan(1);
  int ends[2] = {-1, -1};
  ONESIDED_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
  const Fd writer(ends[0]);
  FramedSocket reader(Fd(ends[1]), true);
  const bool sealed = (how & 1) != 0;
  if (sealed) reader.demand_seal(Key{1, 2, 3});
  const auto expected = (how & 2) != 0 ? FrameKind::kControl : FrameKind::kHandshake;
  const std::size_t cut = std::min<std::size_t>(input.size(), how >> 2);
  for (const auto part : {input.first(cut), input.subspan(cut)}) {
    if (!part.empty() && ::send(writer.get(), part.data(), part.size(), MSG_NOSIGNAL) < 0) return;
    const bool filled = reader.fill().ok();
    while (true) {
      const auto frame = reader.next(expected);
      if (!frame) return;
      if (!*frame) break;
      ONESIDED_CHECK(!sealed, "a frame without a seal was taken");
      ONESIDED_CHECK((*frame)->kind == expected, "a frame of the wrong kind was taken");
      ONESIDED_CHECK((*frame)->payload.size() <= input.size(), "{} bytes came from nowhere", (*frame)->payload.size());
    }
    if (!filled) return;
  }
}

std::vector<std::uint8_t> seed(std::uint8_t how, FrameKind kind, std::size_t frames) {
  std::vector<std::uint8_t> bytes = {how};
  for (std::size_t i = 0; i < frames; ++i) {
    const auto header = encode_frame_header({kind, 0, static_cast<std::uint32_t>(i * 10)});
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.resize(bytes.size() + i * 10, static_cast<std::uint8_t>(i));
  }
  return bytes;
}

}  // namespace
}  // namespace onesided

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  onesided::check({data, size});
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using onesided::FrameKind;
  using onesided::seed;
  return {seed(0, FrameKind::kHandshake, 3), seed(2 | (5 << 2), FrameKind::kControl, 4),
          seed(3 | (20 << 2), FrameKind::kControl, 2), seed(1, FrameKind::kHandshake, 1)};
}
