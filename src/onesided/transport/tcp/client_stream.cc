#include "onesided/transport/tcp/client_stream.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

namespace onesided::tcp {
namespace {

constexpr std::size_t kInBytes = 16 * kKiB;
// Enough for a long path: 16 MiB in flight saturate 10 Gbit/s at a round trip of 13 ms.
constexpr std::uint64_t kWindowBytes = 16 * kMiB;
constexpr std::size_t kWindowRequests = 64;
// Bytes read before other streams of the same loop get their turn.
constexpr std::uint64_t kTurnBytes = 4 * kMiB;
// A waiting thread blocks at the socket at most this long; then the loop receives again. So a stopped run needs no call
// to interrupt the wait.
constexpr int kAwaitMs = 1;

// The target of bytes that are discarded.
std::span<std::uint8_t> discard_buffer() {
  thread_local std::vector<std::uint8_t> bytes(64 * kKiB);
  return bytes;
}

Error protocol_error(std::string_view what) {
  return Error(Status::kFailed, fmt::format("the peer broke the protocol of data streams: {}", what));
}

bool needs_device(const Request& request) {
  return std::ranges::any_of(request.parts, [](const RequestPart& part) { return part.device != nullptr; });
}

void* host(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

ClientStream::ClientStream(std::shared_ptr<EventLoop> loop, std::shared_ptr<Source> source, Fd socket, bool small_only)
    : loop_(std::move(loop)),
      source_(std::move(source)),
      socket_number_(socket.get()),
      small_only_(small_only),
      socket_(std::move(socket)),
      in_(kInBytes) {}

void ClientStream::start() {
  Result<void> watched;
  {
    MutexLock lock(mutex_);
    if (!socket_.valid()) return;  // the stream was lost before start()
    armed_ = EPOLLIN;
    watched = loop_->watch(socket_number_, armed_,
                           [self = shared_from_this()](std::uint32_t events) { self->on_ready(events); });
    watched_ = watched.ok();
  }
  if (!watched) return on_connection_lost(watched.error(), false, false);
  pump();
}

void ClientStream::pump() {
  std::optional<Error> failure;
  // Parts that could not be read from this engine's own device; reported to the sinks after the lock is released.
  std::vector<std::pair<std::unique_ptr<Request>, Error>> unreadable;
  {
    MutexLock lock(mutex_);
    blocked_ = false;
    while (socket_.valid() && !failure && !blocked_) {
      if (!sending_) {
        if (outstanding_.size() >= kWindowRequests || outstanding_bytes_ >= kWindowBytes) break;
        // The link's lock is a leaf: nothing is called under it.
        auto request = source_->next_request(small_only_);
        if (!request) break;
        request->id = next_id_++;
        if (const auto prepared = prepare(*request); !prepared) {
          unreadable.emplace_back(std::move(request), prepared.error());
          continue;
        }
        outstanding_bytes_ += request->nbytes;
        outstanding_.push_back(std::move(request));
      }
      const auto sent = send();
      if (!sent) failure = sent.error();
      blocked_ = sent && !*sent;
    }
    arm();
  }
  for (const auto& [request, why] : unreadable) {
    request->run->abandon(*request, why);
    source_->request_done(request->run);
  }
  if (failure) post_broke(*failure);
}

Result<void> ClientStream::prepare(const Request& request) {
  const bool staged = request.op == Op::kWrite && needs_device(request);
  if (staged) {
    write_staging_.resize(request.nbytes);
    std::uint8_t* to = write_staging_.data();
    for (const auto& part : request.parts) {
      if (part.device == nullptr) {
        std::memcpy(to, host(part.local), part.item.nbytes);
      } else {
        ONESIDED_TRY(part.device->copy_to_host(to, host(part.local), part.item.nbytes));
      }
      to += part.item.nbytes;
    }
  }
  std::vector<DataItem> items;
  items.reserve(request.parts.size());
  for (const auto& part : request.parts) items.push_back(part.item);
  ByteWriter head;
  encode_data_request(head, request.op == Op::kRead ? DataOp::kRead : DataOp::kWrite, request.id, items);
  sending_.emplace();
  sending_->head = head.take();
  sending_->runs.add(sending_->head.data(), sending_->head.size());
  if (request.op == Op::kRead) return {};
  if (staged) {
    sending_->runs.add(write_staging_.data(), write_staging_.size());
  } else {
    for (const auto& part : request.parts) sending_->runs.add(host(part.local), part.item.nbytes);
  }
  return {};
}

// True when all of it is sent.
Result<bool> ClientStream::send() {
  while (!sending_->runs.empty()) {
    ONESIDED_TRY_ASSIGN(sent, send_some(socket_.get(), sending_->runs.front()));
    if (sent == 0) return false;
    sending_->runs.advance(sent);
  }
  sending_.reset();
  return true;
}

void ClientStream::arm() {
  if (!watched_) return;
  const std::uint32_t wanted = (helped_ ? 0U : EPOLLIN) | (blocked_ ? EPOLLOUT : 0U);
  if (wanted == armed_) return;
  armed_ = wanted;
  loop_->change(socket_number_, wanted);
}

void ClientStream::on_ready(std::uint32_t events) {
  const auto self = shared_from_this();
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) {
    for (std::uint64_t turn = 0; turn < kTurnBytes;) {
      const auto received = receive();
      if (!received) return on_connection_lost(received.error(), received.status() != Status::kPeerLost, false);
      if (received->drained) break;
      turn += received->nbytes;
    }
  }
  pump();
}

bool ClientStream::help(const BatchRun& run) {
  if (!join_reading(run)) return false;
  const bool came = receive_for(run);
  // Bytes that have arrived meanwhile, or arrive later, wake the loop again.
  MutexLock lock(mutex_);
  helped_ = false;
  arm();
  return came;
}

bool ClientStream::join_reading(const BatchRun& run) {
  MutexLock lock(mutex_);
  if (helped_ || std::ranges::none_of(outstanding_, [&](const auto& r) { return r->run.get() == &run; })) return false;
  helped_ = true;
  arm();
  return true;
}

bool ClientStream::receive_for(const BatchRun& run) {
  bool came = false;
  for (std::uint64_t turn = 0; turn < kTurnBytes && !run.ended();) {
    auto received = receive();
    if (received && received->nbytes == 0) received = await_more(run);
    if (!received) {
      post_broke(received.error());
      return false;
    }
    if (received->nbytes == 0) break;
    came = true;
    turn += received->nbytes;
    pump();
  }
  return came;
}

// Receives the next bytes, if they arrive soon and the run has not ended.
Result<ClientStream::Received> ClientStream::await_more(const BatchRun& run) {
  if (look_.worthwhile()) {
    Result<Received> received = Received();
    for (const auto until = Clock::now() + BriefLook::kLength; Clock::now() < until && !run.ended();) {
      received = receive();
      if (!received || received->nbytes > 0) break;
    }
    look_.ended(!received || received->nbytes > 0);
    if (!received || received->nbytes > 0) return received;
  }
  // The descriptor number may belong to another socket by now; then poll() only returns too early.
  pollfd entry{socket_number_, POLLIN, 0};
  if (run.ended() || ::poll(&entry, 1, kAwaitMs) <= 0) return Received();
  return receive();
}

// Reads once from the socket and handles the bytes.
Result<ClientStream::Received> ClientStream::receive() {
  std::vector<Answer> answers;
  Result<Received> received = Received();
  {
    MutexLock reading(reading_);
    if (!open_) return Error(Status::kPeerLost, "the data stream is closed");
    received = receive_part();
    answers.swap(answers_);
  }
  for (const auto& [request, failures, tail] : answers) {
    request->run->replied(*request, failures, tail);
    source_->request_done(request->run);
  }
  return received;
}

Result<ClientStream::Received> ClientStream::receive_part() {
  if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
  if (in_begin_ > 0) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  into_ = payload_;
  if (discard_ > 0) {
    into_.clear();
    into_.add(discard_buffer().data(), std::min<std::uint64_t>(discard_, discard_buffer().size()));
  }
  // Bytes after the payload are read in the same call, except after a part of a discarded payload.
  const std::uint64_t payload = into_.left();
  if (discard_ <= discard_buffer().size()) into_.add(in_.data() + in_end_, in_.size() - in_end_);
  const std::uint64_t asked = into_.left();
  ONESIDED_TRY_ASSIGN(got, receive_some(socket_number_, into_.front()));
  if (got == 0) return Received();
  const auto direct = std::min<std::uint64_t>(got, payload);
  if (discard_ > 0) {
    discard_ -= direct;
  } else {
    payload_.advance(direct);
  }
  in_end_ += got - direct;
  while (true) {
    ONESIDED_TRY_ASSIGN(progress, step());
    if (!progress) return Received{got, got < asked};  // a short read has emptied the socket
  }
}

Result<bool> ClientStream::step() {
  switch (state_) {
    case State::kHead: return on_head();
    case State::kFailures: return on_failures();
    case State::kPayload: {
      const auto here = buffered();
      if (discard_ > 0) {
        const auto used = std::min<std::uint64_t>(discard_, here.size());
        discard_ -= used;
        in_begin_ += used;
      } else {
        in_begin_ += payload_.fill_from(here.data(), here.size());
      }
      if (discard_ > 0 || !payload_.empty()) return false;
      state_ = State::kTail;
      return true;
    }
    case State::kTail: return on_tail();
  }
  return false;
}

Result<bool> ClientStream::on_head() {
  if (buffered().size() < kDataReplyHeadBytes) return false;
  auto head = decode_data_reply_head(buffered().first(kDataReplyHeadBytes));
  if (!head) return protocol_error(head.error().text());
  in_begin_ += kDataReplyHeadBytes;
  {
    MutexLock lock(mutex_);
    // The last request must not be answered before it has been sent completely.
    const bool any = outstanding_.size() > (sending_ ? 1 : 0);
    current_ = any ? outstanding_.front().get() : nullptr;
  }
  if (current_ == nullptr || current_->id != head->id) return protocol_error("a reply to no request");
  if (head->failures > current_->parts.size()) return protocol_error("more failures than items");
  expected_failures_ = head->failures;
  payload_bytes_ = head->payload_bytes;
  state_ = State::kFailures;
  return true;
}

Result<bool> ClientStream::on_failures() {
  const std::size_t nbytes = expected_failures_ * kDataFailureBytes;
  if (buffered().size() < nbytes) return false;
  auto failures = decode_data_failures(static_cast<std::uint32_t>(current_->parts.size()), buffered().first(nbytes));
  if (!failures) return protocol_error(failures.error().text());
  in_begin_ += nbytes;
  failures_ = std::move(*failures);
  std::uint64_t expected = 0;
  if (current_->op == Op::kRead) {
    expected = current_->nbytes;
    for (const auto& failure : failures_) expected -= current_->parts[failure.item].item.nbytes;
  }
  if (payload_bytes_ != expected) return protocol_error("a payload of another length than requested");
  if (current_->op == Op::kWrite) {
    state_ = State::kHead;
    std::uint64_t good = current_->nbytes;
    for (const auto& failure : failures_) good -= current_->parts[failure.item].item.nbytes;
    complete({good, Status::kSuccess});
    return true;
  }
  aim_payload();
  state_ = State::kPayload;
  return true;
}

void ClientStream::aim_payload() {
  payload_.clear();
  staged_ = false;
  if (!current_->run) {
    discard_ = payload_bytes_;
    return;
  }
  staged_ = needs_device(*current_);
  if (staged_) {
    read_staging_.resize(payload_bytes_);
    payload_.add(read_staging_.data(), payload_bytes_);
    return;
  }
  std::span<const DataFailure> failures = failures_;
  for (std::size_t i = 0; i < current_->parts.size(); ++i) {
    const auto& part = current_->parts[i];
    if (!failures.empty() && failures.front().item == i) {
      failures = failures.subspan(1);
      continue;
    }
    payload_.add(host(part.local), part.item.nbytes);
  }
}

Result<bool> ClientStream::on_tail() {
  if (buffered().size() < kDataReplyTailBytes) return false;
  auto tail = decode_data_tail(payload_bytes_, buffered().first(kDataReplyTailBytes));
  if (!tail) return protocol_error(tail.error().text());
  in_begin_ += kDataReplyTailBytes;
  state_ = State::kHead;
  complete(*tail);
  return true;
}

// Copies from the staging buffer to the destination. Afterwards failures_ contains every part that could not be copied.
void ClientStream::unload_staging(const DataReplyTail& tail) {
  std::vector<DataFailure> all;
  std::span<const DataFailure> refused = failures_;
  std::uint64_t place = 0;
  for (std::uint32_t i = 0; i < current_->parts.size(); ++i) {
    const auto& part = current_->parts[i];
    if (!refused.empty() && refused.front().item == i) {
      all.push_back(refused.front());
      refused = refused.subspan(1);
      continue;
    }
    const std::uint8_t* from = read_staging_.data() + place;
    place += part.item.nbytes;
    if (place > tail.good_bytes) {
      all.push_back({i, tail.status});
    } else if (part.device == nullptr) {
      std::memcpy(host(part.local), from, part.item.nbytes);
    } else if (const auto copied = part.device->copy_from_host(host(part.local), from, part.item.nbytes); !copied) {
      all.push_back({i, copied.error().status()});
    }
  }
  failures_ = std::move(all);
}

void ClientStream::complete(DataReplyTail tail) {
  if (current_->run && staged_) {
    unload_staging(tail);
    tail = {current_->nbytes, Status::kSuccess};
  }
  staged_ = false;
  std::unique_ptr<Request> done;
  {
    MutexLock lock(mutex_);
    done = std::move(outstanding_.front());
    outstanding_.pop_front();
    outstanding_bytes_ -= done->nbytes;
  }
  current_ = nullptr;
  if (done->run) answers_.push_back({std::move(done), failures_, tail});
}

void ClientStream::drop_run(const std::shared_ptr<BatchRun>& run, bool now) {
  std::vector<Request> dropped;
  bool writing = false;
  {
    MutexLock reading(reading_);
    MutexLock lock(mutex_);
    for (const auto& request : outstanding_) {
      if (request->run != run) continue;
      if (request->op == Op::kWrite) {
        writing = true;
        continue;
      }
      request->run = nullptr;
      dropped.push_back(*request);
      if (request.get() != current_ || state_ != State::kPayload) continue;
      discard_ = payload_.left();
      payload_.clear();
    }
  }
  for (const auto& request : dropped) {
    run->abandon(request);
    source_->request_done(run);
  }
  if (writing && now)
    on_connection_lost(Error(Status::kCancelled, "a data stream was reset to end a WRITE"), false, true);
}

void ClientStream::post_broke(const Error& why) {
  loop_->post(
      [self = shared_from_this(), why] { self->on_connection_lost(why, why.status() != Status::kPeerLost, false); });
}

void ClientStream::close(const Error& why) { on_connection_lost(why, false, false); }

void ClientStream::on_connection_lost(const Error& why, bool fault, bool abort) {
  std::vector<std::unique_ptr<Request>> unanswered;
  {
    MutexLock reading(reading_);
    MutexLock lock(mutex_);
    if (!socket_.valid()) return;
    open_ = false;
    payload_.clear();
    discard_ = 0;
    current_ = nullptr;
    watched_ = false;
    loop_->unwatch(socket_number_);
    // A WRITE that was sent in part must not be applied by a peer that continues to read.
    const bool writing = std::ranges::any_of(outstanding_, [](const auto& r) { return r->op == Op::kWrite; });
    if (abort || writing) abort_on_close(socket_.get());
    socket_.reset();
    sending_.reset();
    for (auto& request : outstanding_) {
      if (request->run) unanswered.push_back(std::move(request));
    }
    outstanding_.clear();
    outstanding_bytes_ = 0;
  }
  source_->stream_broke(*this, std::move(unanswered), why, fault);
}

}  // namespace onesided::tcp
