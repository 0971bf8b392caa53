// An exchange of objects: publishing and fetching with one engine, one set of registrations and one set of connections.
// A program makes one per engine; Ray's transport makes one per process.
#pragma once

#include <cstddef>
#include <memory>

#include "onesided/node/exchange/engine_port.h"
#include "onesided/node/exchange/fetches.h"
#include "onesided/node/exchange/peer_cache.h"
#include "onesided/node/exchange/region_refs.h"
#include "onesided/node/exchange/tensor_store.h"

namespace onesided {

struct ExchangeOptions {
  std::size_t max_peers = 1000;  // connections kept for reuse; 0: connect and disconnect for each fetch
  bool keep_idle = true;         // registrations remain after their last use until their memory is freed
};

// Published and fetched objects of one engine. Thread-safe. Must outlive its fetches.
class Exchange {
 public:
  Exchange(std::shared_ptr<EnginePort> engine, ExchangeOptions options)
      : engine_(std::move(engine)), regions_(*engine_, options.keep_idle), peers_(*engine_, options.max_peers) {}

  const std::shared_ptr<EnginePort>& engine() { return engine_; }
  RegionRefs& regions() { return regions_; }
  PeerCache& peers() { return peers_; }
  TensorStore& objects() { return objects_; }
  Fetches& fetches() { return fetches_; }

 private:
  const std::shared_ptr<EnginePort> engine_;
  RegionRefs regions_;
  PeerCache peers_;
  TensorStore objects_{*engine_, regions_};
  Fetches fetches_{*engine_, regions_, peers_};
};

}  // namespace onesided
