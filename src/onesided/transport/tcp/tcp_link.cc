#include "onesided/transport/tcp/tcp_link.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <system_error>

#include "onesided/base/log.h"

namespace onesided::tcp {
namespace {

// A stopped WRITE may take this long to be answered before its stream is reset; cancel() guarantees 100 ms in total.
constexpr auto kWriteGrace = std::chrono::milliseconds(50);
constexpr std::int64_t kOpenMs = 2000;
constexpr std::int64_t kFirstPauseMs = 20;
constexpr std::int64_t kLongestPauseMs = 1000;
constexpr int kMaxBrokenStreams = 3;

}  // namespace

LinkCore::LinkCore(std::shared_ptr<PeerChannel> channel, std::vector<std::shared_ptr<EventLoop>> loops,
                   std::uint32_t streams, std::string congestion)
    : channel_(std::move(channel)),
      peer_id_(channel_->peer().engine_id),
      loops_(std::move(loops)),
      wanted_streams_(streams),
      congestion_(std::move(congestion)) {}

Result<void> LinkCore::open(Deadline deadline) {
  ONESIDED_TRY_ASSIGN(socket, channel_->open_stream("tcp", deadline));
  add_stream(std::move(socket));
  MutexLock lock(mutex_);
  repair();
  return {};
}

void LinkCore::add_stream(Fd socket) {
  set_up_stream(socket.get(), congestion_);
  std::shared_ptr<ClientStream> stream;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    // The first stream serves all batches, so that there is always one; the stream reserved for small batches is opened
    // second.
    const bool small_only = wanted_streams_ > 1 && !streams_.empty() &&
                            std::ranges::none_of(streams_, [](const auto& s) { return s->small_only(); });
    stream = std::make_shared<ClientStream>(loops_[next_loop_++ % loops_.size()], shared_from_this(), std::move(socket),
                                            small_only);
    streams_.push_back(stream);
  }
  stream->loop()->post([stream] { stream->start(); });
}

void LinkCore::repair() {
  if (closed_ || opening_ || streams_.size() >= wanted_streams_) return;
  opening_ = true;
  MutexLock opener_lock(opener_mutex_);
  if (opener_.joinable()) opener_.join();  // it has set opening_ to false as its last act
  try {
    opener_ = std::thread([self = shared_from_this()] { self->open_missing(); });
  } catch (const std::system_error& failure) {
    opening_ = false;
    log_line(LogLevel::kWarn,
             fmt::format("data streams to {}: cannot start a thread to open them ({})", peer_id_, failure.what()));
    repair_later();
  }
}

void LinkCore::repair_later() {
  const auto& loop = loops_.front();
  loop->post([loop, weak = weak_from_this()] {
    loop->call_at(Clock::now() + std::chrono::milliseconds(kLongestPauseMs), [weak] {
      const auto self = weak.lock();
      if (!self) return;
      if (!self->channel_->alive())
        return self->end_all(Error(Status::kPeerLost, fmt::format("the connection to {} was lost", self->peer_id_)));
      MutexLock lock(self->mutex_);
      self->repair();
    });
  });
}

void LinkCore::open_missing() {
  std::int64_t pause_ms = kFirstPauseMs;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (closed_ || streams_.size() >= wanted_streams_) {
        opening_ = false;
        return;
      }
    }
    auto socket = channel_->open_stream("tcp", Deadline::after_ms(kOpenMs));
    if (socket) {
      add_stream(std::move(*socket));
      pause_ms = kFirstPauseMs;
      continue;
    }
    if (!channel_->alive()) {
      end_all(Error(Status::kPeerLost, fmt::format("the connection to {} was lost", peer_id_)));
      MutexLock lock(mutex_);
      opening_ = false;
      return;
    }
    log_line(LogLevel::kInfo, fmt::format("data stream to {}: {}", peer_id_, socket.error().to_string()));
    MutexLock lock(mutex_);
    const auto until = Deadline::after_ms(pause_ms);
    while (!closed_ && !until.passed()) closing_.wait(lock, until);
    pause_ms = std::min(pause_ms * 2, kLongestPauseMs);
  }
}

std::vector<std::shared_ptr<ClientStream>> LinkCore::streams() {
  MutexLock lock(mutex_);
  return streams_;
}

void LinkCore::post(std::shared_ptr<const Batch> batch) {
  const auto run = std::make_shared<BatchRun>(batch, peer_id_);
  const auto deadline = batch->deadline;
  std::optional<Error> refused;
  bool arm = false;
  {
    MutexLock lock(mutex_);
    if (closed_) {
      refused = Error(Status::kClosed, fmt::format("the link to {} is closed", peer_id_));
    } else if (!channel_->alive()) {
      refused = Error(Status::kPeerLost, fmt::format("the connection to {} was lost", peer_id_));
    } else {
      runs_[batch.get()] = run;
      (run->small() ? small_ : large_).push_back(run);
      if (!deadline.is_never()) {
        deadlines_.emplace(deadline.at(), batch.get());
        // One timer serves all deadlines: it is set again only for an earlier deadline.
        arm = deadline.at() < armed_;
        if (arm) armed_ = deadline.at();
      }
      if (streams_.empty()) repair();
    }
  }
  if (refused) return run->stop(*refused);
  if (arm) arm_deadline();
  pump_for(*run);
}

// A READ, or a small WRITE, is sent on the caller's thread, which avoids one wake-up.
void LinkCore::pump_for(const BatchRun& run) {
  const auto all = streams();
  const bool here = run.small() || run.batch().op == Op::kRead;
  // The stream reserved for small batches first.
  for (const bool small_only : {true, false}) {
    if (small_only && !run.small()) continue;
    for (const auto& stream : all) {
      if (stream->small_only() != small_only) continue;
      if (here) {
        stream->pump();
      } else {
        stream->loop()->post([stream] { stream->pump(); });
      }
      if (!run.anything_to_send()) return;
    }
  }
}

std::unique_ptr<Request> LinkCore::next_request(bool small_only) {
  MutexLock lock(mutex_);
  while (true) {
    const bool take_large = !small_only && !large_.empty() && (large_turn_ || small_.empty());
    auto& queue = take_large ? large_ : small_;
    if (queue.empty()) return nullptr;
    large_turn_ = !take_large;
    const auto run = std::move(queue.front());
    queue.pop_front();
    auto request = run->next();
    if (!request) continue;
    if (run->anything_to_send()) queue.push_back(run);
    return request;
  }
}

void LinkCore::forget(const BatchRun& run) {
  runs_.erase(&run.batch());
  if (!run.batch().deadline.is_never()) deadlines_.erase({run.batch().deadline.at(), &run.batch()});
}

void LinkCore::request_done(const std::shared_ptr<BatchRun>& run) {
  if (!run->ended()) return;
  MutexLock lock(mutex_);
  forget(*run);
}

std::shared_ptr<BatchRun> LinkCore::find(const Batch& batch) {
  MutexLock lock(mutex_);
  const auto found = runs_.find(&batch);
  return found == runs_.end() ? nullptr : found->second;
}

void LinkCore::cancel(const Batch& batch, const Error& why) {
  if (const auto run = find(batch)) end_run(run, why);
}

bool LinkCore::help(const Batch& batch) {
  const auto run = find(batch);
  return run && std::ranges::any_of(streams(), [&](const auto& stream) { return stream->help(*run); });
}

void LinkCore::end_run(const std::shared_ptr<BatchRun>& run, const Error& why) {
  run->stop(why);
  if (run->ended()) return request_done(run);
  for (const auto& stream : streams()) {
    stream->loop()->post([stream, run] {
      stream->drop_run(run, false);
      if (run->ended() || run->batch().op == Op::kRead) return;
      stream->loop()->call_at(Clock::now() + kWriteGrace, [stream, run] {
        if (!run->ended()) stream->drop_run(run, true);
      });
    });
  }
}

void LinkCore::end_all(const Error& why) {
  std::vector<std::shared_ptr<BatchRun>> all;
  {
    MutexLock lock(mutex_);
    for (const auto& [_, run] : runs_) all.push_back(run);
  }
  for (const auto& run : all) end_run(run, why);
}

void LinkCore::arm_deadline() {
  loops_.front()->post([self = shared_from_this()] { self->on_deadline(); });
}

// Ends the runs whose deadline has passed and sets the timer for the others.
void LinkCore::on_deadline() {
  std::vector<std::shared_ptr<BatchRun>> due;
  std::optional<Clock::time_point> next;
  {
    MutexLock lock(mutex_);
    const auto now = Clock::now();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      const auto found = runs_.find(deadlines_.begin()->second);
      if (found != runs_.end()) due.push_back(found->second);
      deadlines_.erase(deadlines_.begin());
    }
    armed_ = deadlines_.empty() || closed_ ? Clock::time_point::max() : deadlines_.begin()->first;
    if (armed_ != Clock::time_point::max()) next = armed_;
  }
  for (const auto& run : due)
    end_run(run, Error(Status::kTimeout, fmt::format("{} did not move all the bytes before the deadline", peer_id_)));
  loops_.front()->cancel(deadline_timer_);
  deadline_timer_ = 0;
  if (next)
    deadline_timer_ = loops_.front()->call_at(*next, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_deadline();
    });
}

void LinkCore::stream_broke(ClientStream& stream, std::vector<std::unique_ptr<Request>> unanswered, const Error& why,
                            bool fault) {
  log_line(LogLevel::kDebug, fmt::format("data stream to {}: {}", peer_id_, why.to_string()));
  bool closed = false;
  {
    MutexLock lock(mutex_);
    std::erase_if(streams_, [&](const auto& s) { return s.get() == &stream; });
    closed = closed_;
  }
  const bool alive = channel_->alive();
  const Error lost(Status::kPeerLost, fmt::format("the connection to {} was lost", peer_id_));
  for (auto& request : unanswered) {
    const auto run = request->run;
    if (!alive) run->stop(lost);
    const bool hopeless = fault || ++request->broken_streams >= kMaxBrokenStreams;
    if (closed || !alive || run->stopped()) {
      run->abandon(*request);
    } else if (hopeless) {
      run->abandon(*request, fault ? why : lost);
    } else {
      run->give_back(std::move(request));
      MutexLock lock(mutex_);
      auto& queue = run->small() ? small_ : large_;
      if (std::ranges::find(queue, run) == queue.end()) queue.push_front(run);
    }
    request_done(run);
  }
  if (closed) return;
  if (!alive) return end_all(lost);
  {
    MutexLock lock(mutex_);
    repair();
  }
  for (const auto& other : streams()) other->loop()->post([other] { other->pump(); });
}

void LinkCore::close() {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    closing_.notify_all();
  }
  const Error why(Status::kClosed, fmt::format("the link to {} was closed", peer_id_));
  end_all(why);
  for (const auto& stream : streams()) {
    ONESIDED_CHECK(!stream->loop()->in_loop(), "a tcp link was destroyed on its own thread");
    std::atomic<bool> done{false};
    stream->loop()->post([&] {
      stream->close(why);
      done = true;
      done.notify_one();
    });
    done.wait(false);
  }
  MutexLock lock(opener_mutex_);
  if (opener_.joinable()) opener_.join();
}

}  // namespace onesided::tcp
