#include "onesided/base/copy.h"
#include "onesided/transport/bounce.h"
#include "onesided/transport/self/factory.h"

namespace onesided {
namespace {

bool apart(std::uint64_t a, std::uint64_t b, std::uint64_t nbytes) { return a + nbytes <= b || b + nbytes <= a; }

// Thread-safe: it has no state.
class SelfLink : public CopyLink {
 public:
  std::optional<Failure> copy(Op op, std::span<const Move> moves) override {
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const Move& move = moves[i];
      const bool read = op == Op::kRead;
      const std::uint64_t to = read ? move.local : move.remote, from = read ? move.remote : move.local;
      if (!move.device && !move.remote_device && apart(to, from, move.nbytes)) {
        copy_bytes(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), move.nbytes);
        continue;
      }
      auto copied = read ? copy_between(move.device, to, move.remote_device, from, move.nbytes)
                         : copy_between(move.remote_device, to, move.device, from, move.nbytes);
      if (!copied.ok()) return Failure{i, 0, copied.error()};
    }
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<CopyLink> make_self_link() { return std::make_unique<SelfLink>(); }

}  // namespace onesided
