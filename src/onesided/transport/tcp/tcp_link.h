// The link to one peer over several TCP streams. Batches are queued here and passed to streams request by request, so
// that streams, batches and threads share fairly. If a stream breaks, its unfinished requests return here.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "onesided/base/event_loop.h"
#include "onesided/base/mutex.h"
#include "onesided/transport/tcp/client_stream.h"
#include "onesided/transport/transport.h"

namespace onesided::tcp {

// The state of a link, to which its streams and timers refer; it exists as long as the last of them.
class LinkCore final : public ClientStream::Source, public std::enable_shared_from_this<LinkCore> {
 public:
  LinkCore(std::shared_ptr<PeerChannel> channel, std::vector<std::shared_ptr<EventLoop>> loops, std::uint32_t streams,
           std::string congestion);

  // Opens the first stream on the caller's thread; the others are opened in the background.
  Result<void> open(Deadline deadline);
  void post(std::shared_ptr<const Batch> batch);
  void cancel(const Batch& batch, const Error& why);
  bool help(const Batch& batch);
  // Ends all work, closes the streams, joins the thread that opens them. Must not be called on a loop's thread.
  void close();

  std::unique_ptr<Request> next_request(bool small_only) override;
  void request_done(const std::shared_ptr<BatchRun>& run) override;
  void stream_broke(ClientStream& stream, std::vector<std::unique_ptr<Request>> unanswered, const Error& why,
                    bool fault) override;

 private:
  using DeadlineKey = std::pair<Clock::time_point, const Batch*>;

  void add_stream(Fd socket);
  void repair() ONESIDED_REQUIRES(mutex_);
  void repair_later();
  void open_missing();
  void pump_for(const BatchRun& run);
  std::shared_ptr<BatchRun> find(const Batch& batch);
  void end_run(const std::shared_ptr<BatchRun>& run, const Error& why);
  void end_all(const Error& why);
  void forget(const BatchRun& run) ONESIDED_REQUIRES(mutex_);
  void arm_deadline();
  void on_deadline();
  std::vector<std::shared_ptr<ClientStream>> streams();

  const std::shared_ptr<PeerChannel> channel_;
  const std::string peer_id_;
  const std::vector<std::shared_ptr<EventLoop>> loops_;
  const std::uint32_t wanted_streams_;
  const std::string congestion_;

  EventLoop::TimerId deadline_timer_ = 0;  // used on the first loop's thread

  Mutex mutex_;
  std::vector<std::shared_ptr<ClientStream>> streams_ ONESIDED_GUARDED_BY(mutex_);
  std::map<const Batch*, std::shared_ptr<BatchRun>> runs_ ONESIDED_GUARDED_BY(mutex_);  // not ended
  std::set<DeadlineKey> deadlines_ ONESIDED_GUARDED_BY(mutex_);
  Clock::time_point armed_ ONESIDED_GUARDED_BY(mutex_) = Clock::time_point::max();
  // Runs with requests to send, each once; the front has the next turn.
  std::deque<std::shared_ptr<BatchRun>> small_ ONESIDED_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<BatchRun>> large_ ONESIDED_GUARDED_BY(mutex_);
  bool large_turn_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::size_t next_loop_ ONESIDED_GUARDED_BY(mutex_) = 0;
  bool closed_ ONESIDED_GUARDED_BY(mutex_) = false;
  bool opening_ ONESIDED_GUARDED_BY(mutex_) = false;
  CondVar closing_;

  Mutex opener_mutex_;
  std::thread opener_ ONESIDED_GUARDED_BY(opener_mutex_);
};

// Thread-safe.
class TcpLink final : public QueueLink {
 public:
  explicit TcpLink(std::shared_ptr<LinkCore> core) : core_(std::move(core)) {}
  ~TcpLink() override { core_->close(); }
  void post(std::shared_ptr<const Batch> batch) override { core_->post(std::move(batch)); }
  void cancel(const Batch& batch, Error why) override { core_->cancel(batch, why); }
  bool help(const Batch& batch) override { return core_->help(batch); }

 private:
  const std::shared_ptr<LinkCore> core_;
};

}  // namespace onesided::tcp
