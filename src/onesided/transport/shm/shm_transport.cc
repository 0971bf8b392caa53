#include <fmt/format.h>

#include <algorithm>

#include "onesided/transport/shm/factory.h"
#include "onesided/transport/shm/shm_link.h"

namespace onesided {
namespace {

class ShmTransport : public Transport {
 public:
  std::string_view name() const override { return "shm"; }
  Result<void> reach(const PeerInfo& peer) override {
    if (!peer.local) return Error(Status::kUnsupported, "the peer is not a process of this host and user");
    if (std::find(peer.transports.begin(), peer.transports.end(), name()) == peer.transports.end())
      return Error(Status::kUnsupported, "the peer's engine does not serve shm");
    return {};
  }
  Result<AnyLink> connect(std::shared_ptr<PeerChannel>, const PeerInfo& peer, Deadline) override {
    ONESIDED_TRY(reach(peer));
    return AnyLink(std::make_unique<ShmLink>());
  }
};

}  // namespace

std::unique_ptr<Transport> make_shm_transport() { return std::make_unique<ShmTransport>(); }

}  // namespace onesided
