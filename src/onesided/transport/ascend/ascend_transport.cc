// The Transport interface over HIXL: which peers it reaches, links to peers, and for peers the offer of the memory that
// this engine's HIXL has registered.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <system_error>
#include <thread>

#include "onesided/base/log.h"
#include "onesided/base/mutex.h"
#include "onesided/transport/ascend/ascend_link.h"
#include "onesided/transport/ascend/factory.h"
#include "onesided/transport/ascend/hixl_client.h"
#include "onesided/transport/ascend/hixl_library.h"
#include "onesided/transport/ascend/offer.h"
#include "onesided/transport/ascend/segment_book.h"

namespace onesided {

namespace {

using ascend::HixlClient;
using ascend::HixlLibrary;

constexpr int kPortAttempts = 16;
constexpr std::int64_t kOfferMs = 5000;

// HIXL needs an explicit port to listen on. The kernel chooses a free one; another process may bind it before HIXL
// does, so the caller tries again. 0: no port is free.
std::uint16_t free_port(const std::string& host) {
  sockaddr_storage address{};
  socklen_t length = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    length = sizeof(*v4);
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    length = sizeof(*v6);
  } else {
    return 0;
  }
  const Fd probe(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe.valid() || ::bind(probe.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return 0;
  return ntohs(address.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
}

Result<std::unique_ptr<HixlClient>> make_client(const AscendTransportOptions& options) {
  ONESIDED_TRY_ASSIGN(library, HixlLibrary::load(options.library));
  // No staging inside HIXL, because transferred memory is registered. HIXL connects only on request.
  const std::map<std::string, std::string> hixl_options = {{"BufferPool", "0:0"}};
  std::optional<Error> last;
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    const std::uint16_t port = free_port(options.host);
    if (port == 0)
      return Error(
          Status::kParamInvalid,
          fmt::format("HIXL cannot listen on {}: not an address of this host, or no port is free", options.host));
    const bool v6 = options.host.find(':') != std::string::npos;
    const std::string name = fmt::format("{}{}{}:{}", v6 ? "[" : "", options.host, v6 ? "]" : "", port);
    auto client = HixlClient::create(library, name, hixl_options);
    if (client) return client;
    last = client.error();
  }
  return last->with_context("HIXL cannot be initialized");
}

// Internally synchronized.
class AscendTransport final : public Transport {
 public:
  explicit AscendTransport(const AscendTransportOptions& options) : client_(make_client(options)) {
    if (client_) book_ = std::make_unique<ascend::SegmentBook>(**client_);
  }
  ~AscendTransport() override { stop(); }

  std::string_view name() const override { return "ascend"; }

  Result<void> reach(const PeerInfo& peer) override {
    if (!client_) return client_.error();
    if (std::find(peer.transports.begin(), peer.transports.end(), name()) == peer.transports.end())
      return Error(Status::kUnsupported, fmt::format("{} does not offer ascend", peer.engine_id));
    return {};
  }

  Result<AnyLink> connect(std::shared_ptr<PeerChannel> channel, const PeerInfo& peer, Deadline deadline) override {
    ONESIDED_TRY(reach(peer));
    ONESIDED_TRY_ASSIGN(stream, channel->open_stream(name(), deadline));
    ONESIDED_TRY_ASSIGN(link, ascend::AscendLink::create(**client_, *book_, std::move(stream), deadline));
    return AnyLink(std::unique_ptr<QueueLink>(std::move(link)));
  }

  void serve(Fd stream, std::shared_ptr<PeerChannel> /*channel*/) override;
  void stop() override;
  void memory_registered(const RegionDesc& region) override {
    if (book_) book_->add(region);
  }
  void memory_dropped(RegionKey key) override {
    if (book_) book_->forget(key);
  }

 private:
  // A peer's stream and the thread that serves it.
  struct Served {
    Fd stream;
    std::thread thread;
    bool done = false;
  };
  void answer(Served& served);

  Result<std::unique_ptr<HixlClient>> client_;
  std::unique_ptr<ascend::SegmentBook> book_;  // null if there is no client
  Mutex mutex_;
  std::list<Served> served_ ONESIDED_GUARDED_BY(mutex_);
  bool stopped_ ONESIDED_GUARDED_BY(mutex_) = false;
};

void AscendTransport::serve(Fd stream, std::shared_ptr<PeerChannel> /*channel*/) {
  std::list<Served> finished;
  {
    MutexLock lock(mutex_);
    if (stopped_ || !client_) return;  // the peer sees its stream closed
    for (auto it = served_.begin(); it != served_.end();) {
      const auto next = std::next(it);
      if (it->done) finished.splice(finished.end(), served_, it);
      it = next;
    }
    Served& served = served_.emplace_back();
    served.stream = std::move(stream);
    try {
      served.thread = std::thread([this, &served] { answer(served); });
    } catch (const std::system_error& failure) {
      log_line(LogLevel::kWarn, fmt::format("ascend: cannot start a thread to serve a peer ({})", failure.what()));
      served_.pop_back();  // the peer sees its stream closed
    }
  }
  for (Served& served : finished) served.thread.join();
}

void AscendTransport::answer(Served& served) {
  while (const auto tag = ascend::wait_request(served.stream)) {
    ascend::Offer offer;
    offer.hixl_engine = (*client_)->local_engine();
    offer.regions = book_->keys(offer.meta_version);
    if (!ascend::send_offer(served.stream, *tag, offer, Deadline::after_ms(kOfferMs))) break;
  }
  ::shutdown(served.stream.get(), SHUT_RDWR);
  MutexLock lock(mutex_);
  served.done = true;
}

void AscendTransport::stop() {
  std::list<Served> all;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    for (Served& served : served_) ::shutdown(served.stream.get(), SHUT_RDWR);
    all.splice(all.end(), served_);
  }
  for (Served& served : all) served.thread.join();
}

}  // namespace

std::unique_ptr<Transport> make_ascend_transport(const AscendTransportOptions& options) {
  return std::make_unique<AscendTransport>(options);
}

}  // namespace onesided
