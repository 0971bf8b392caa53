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
      std::uint64_t done = 0;
      Result<void> copied;
      moves[i].each_run([&](std::uint64_t local, std::uint64_t remote, std::uint64_t nbytes) {
        if (!copied.ok()) return;
        copied = copy_run(op, moves[i], local, remote, nbytes);
        if (copied.ok()) done += nbytes;
      });
      if (!copied.ok()) return Failure{i, done, copied.error()};
    }
    return std::nullopt;
  }

 private:
  static Result<void> copy_run(Op op, const Move& move, std::uint64_t local, std::uint64_t remote,
                               std::uint64_t nbytes) {
    const bool read = op == Op::kRead;
    const std::uint64_t to = read ? local : remote, from = read ? remote : local;
    if (!move.device && !move.remote_device && apart(to, from, nbytes)) {
      copy_bytes(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), nbytes);
      return {};
    }
    return read ? copy_between(move.device, to, move.remote_device, from, nbytes)
                : copy_between(move.remote_device, to, move.device, from, nbytes);
  }
};

}  // namespace

std::unique_ptr<CopyLink> make_self_link() { return std::make_unique<SelfLink>(); }

}  // namespace onesided
