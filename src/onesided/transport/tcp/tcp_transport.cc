#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "onesided/base/event_loop.h"
#include "onesided/base/log.h"
#include "onesided/base/mutex.h"
#include "onesided/transport/tcp/factory.h"
#include "onesided/transport/tcp/served_stream.h"
#include "onesided/transport/tcp/tcp_link.h"

namespace onesided {
namespace {

constexpr const char* kPreferredCongestion = "cubic";
constexpr std::uint32_t kMaxStreams = 64;  // of one session

// Runs the task on the loop and waits for it.
template <typename Task>
void run_on(EventLoop& loop, Task task) {
  std::atomic<bool> done{false};
  loop.post([&] {
    task();
    done = true;
    done.notify_one();
  });
  done.wait(false);
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpOptions options, std::string congestion, RegionAccess& memory,
               std::vector<std::shared_ptr<EventLoop>> loops)
      : options_(std::move(options)), congestion_(std::move(congestion)), memory_(memory), loops_(std::move(loops)) {}

  ~TcpTransport() override { stop(); }

  std::string_view name() const override { return "tcp"; }

  std::string settings() const override {
    return fmt::format("streams={} threads={} congestion={}", options_.streams, options_.threads,
                       congestion_.empty() ? "system" : congestion_);
  }

  Result<void> reach(const PeerInfo& peer) override {
    if (std::ranges::find(peer.transports, "tcp") != peer.transports.end()) return {};
    return Error(Status::kUnsupported, fmt::format("{} does not serve tcp (its option 'transports')", peer.engine_id));
  }

  Result<AnyLink> connect(std::shared_ptr<PeerChannel> channel, const PeerInfo& /*peer*/, Deadline deadline) override {
    const auto core =
        std::make_shared<tcp::LinkCore>(std::move(channel), turned_loops(), options_.streams, congestion_);
    ONESIDED_TRY(core->open(deadline));
    return AnyLink(std::unique_ptr<QueueLink>(std::make_unique<tcp::TcpLink>(core)));
  }

  void serve(Fd stream, std::shared_ptr<PeerChannel> channel) override {
    tcp::set_up_stream(stream.get(), congestion_);
    const auto loop = loops_[next_loop_.fetch_add(1) % loops_.size()];
    const auto served = std::make_shared<tcp::ServedStream>(loop, memory_, std::move(channel), std::move(stream),
                                                            [this](tcp::ServedStream& ended) { forget(ended); });
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      const auto of_session =
          std::ranges::count_if(served_, [&](const auto& other) { return &other->channel() == &served->channel(); });
      if (of_session >= kMaxStreams || served_.size() >= descriptor_limit() / 2) {
        return log_line(LogLevel::kWarn, fmt::format("refused a data stream from {}: it has {}, all peers have {}",
                                                     served->channel().peer().engine_id, of_session, served_.size()));
      }
      served_.insert(served);
    }
    loop->post([served] { served->start(); });
  }

  void session_ended(const PeerChannel& channel) override {
    MutexLock lock(mutex_);
    for (const auto& stream : served_)
      if (&stream->channel() == &channel) stream->loop()->post([stream] { stream->close(); });
  }

  void stop() override {
    std::set<std::shared_ptr<tcp::ServedStream>> served;
    {
      MutexLock lock(mutex_);
      stopped_ = true;
      served.swap(served_);
    }
    for (const auto& stream : served) run_on(*stream->loop(), [&] { stream->close(); });
    // The engine has closed its connections before, so no link waits for a loop.
    for (const auto& loop : loops_) loop->stop();
  }

 private:
  void forget(tcp::ServedStream& ended) {
    MutexLock lock(mutex_);
    std::erase_if(served_, [&](const auto& stream) { return stream.get() == &ended; });
  }

  // Each link starts with another loop.
  std::vector<std::shared_ptr<EventLoop>> turned_loops() {
    auto loops = loops_;
    const auto first = next_loop_.fetch_add(1) % loops.size();
    std::rotate(loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(first), loops.end());
    return loops;
  }

  const TcpOptions options_;
  const std::string congestion_;
  RegionAccess& memory_;
  const std::vector<std::shared_ptr<EventLoop>> loops_;
  std::atomic<std::size_t> next_loop_{0};

  Mutex mutex_;
  bool stopped_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<tcp::ServedStream>> served_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::string> tcp_congestion_in_use(const std::string& wanted) {
  const std::string name = wanted.empty() ? kPreferredCongestion : wanted;
  const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe.valid())
    return Error(Status::kResourceExhausted, fmt::format("cannot create a socket ({})", std::strerror(errno)));
  if (::setsockopt(probe.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0)
    return name;
  if (wanted.empty()) return std::string();
  return Error(Status::kParamInvalid,
               fmt::format("tcp_congestion '{}': {} (see /proc/sys/net/ipv4/tcp_allowed_congestion_control)", wanted,
                           std::strerror(errno)));
}

Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options, RegionAccess& memory) {
  if (options.streams < 1 || options.streams > kMaxStreams)
    return Error(Status::kParamInvalid, fmt::format("tcp_streams {} is not in 1..64", options.streams));
  if (options.threads < 1 || options.threads > 64)
    return Error(Status::kParamInvalid, fmt::format("tcp threads {} is not in 1..64", options.threads));
  ONESIDED_TRY_ASSIGN(congestion, tcp_congestion_in_use(options.congestion));
  std::vector<std::shared_ptr<EventLoop>> loops;
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    ONESIDED_TRY_ASSIGN(loop, EventLoop::create(fmt::format("onesided-tcp{}", i), true));
    loops.push_back(std::move(loop));
  }
  return std::unique_ptr<Transport>(
      std::make_unique<TcpTransport>(options, std::move(congestion), memory, std::move(loops)));
}

}  // namespace onesided
