#include "onesided/transport/tcp/served_stream.h"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "onesided/base/log.h"
#include "onesided/base/mappings.h"

namespace onesided::tcp {
namespace {

constexpr std::size_t kInBytes = 16 * kKiB;
static_assert(kInBytes > kDataRequestHeadBytes + kMaxDataItems * kDataItemBytes);
// Steps before other streams of the same loop get their turn; about 4 MiB of large requests.
constexpr int kTurnSteps = 32;
constexpr std::size_t kBlankBytes = 64 * kKiB;

// Sent in place of data if a registration ended in the middle of a reply.
const std::uint8_t* zeros() {
  static const std::vector<std::uint8_t> bytes(kBlankBytes);
  return bytes.data();
}

// The target of the payload of refused items. Never read.
std::uint8_t* discard_buffer() {
  thread_local std::vector<std::uint8_t> bytes(kBlankBytes);
  return bytes.data();
}

void add_repeated(ByteRuns& runs, const std::uint8_t* block, std::uint64_t nbytes) {
  for (; nbytes > 0; nbytes -= std::min<std::uint64_t>(nbytes, kBlankBytes))
    runs.add(block, std::min<std::uint64_t>(nbytes, kBlankBytes));
}

void* host(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

ServedStream::ServedStream(std::shared_ptr<EventLoop> loop, RegionAccess& memory, std::shared_ptr<PeerChannel> channel,
                           Fd socket, std::function<void(ServedStream&)> forget)
    : loop_(std::move(loop)),
      memory_(memory),
      channel_(std::move(channel)),
      socket_(std::move(socket)),
      forget_(std::move(forget)),
      in_(kInBytes) {}

void ServedStream::start() {
  if (!socket_.valid()) return;
  wanted_ = EPOLLIN;
  const auto watched =
      loop_->watch(socket_.get(), wanted_, [self = shared_from_this()](std::uint32_t) { self->on_ready(); });
  if (!watched) close();
}

void ServedStream::close() {
  if (!socket_.valid()) return;
  const auto self = shared_from_this();
  holds_.clear();
  loop_->unwatch(socket_.get());
  socket_.reset();
  if (forget_) forget_(*this);
  forget_ = nullptr;
}

void ServedStream::want(std::uint32_t events) {
  if (events == wanted_) return;
  wanted_ = events;
  loop_->change(socket_.get(), events);
}

void ServedStream::on_ready() {
  const auto self = shared_from_this();
  drained_ = false;
  for (int step = 0; step < kTurnSteps; ++step) {
    if (!socket_.valid()) return;
    // The peer is lost, or this engine ended the session: no bytes of it may move any more.
    if (!channel_->alive()) return close();
    const auto more = advance();
    if (!more) {
      if (more.status() != Status::kPeerLost) {
        log_line(LogLevel::kWarn, fmt::format("a data stream of {} was closed: {}", channel_->peer().engine_id,
                                              more.error().to_string()));
      }
      return close();
    }
    if (!*more) return;
  }
  // The rest may be in this stream's own buffer, which epoll does not report.
  holds_.clear();
  loop_->post([self] { self->on_ready(); });
}

Result<bool> ServedStream::advance() {
  switch (state_) {
    case State::kHead:
      if (buffered().size() < kDataRequestHeadBytes) return receive_more();
      return take_head();
    case State::kItems:
      if (buffered().size() < head_.items * kDataItemBytes) return receive_more();
      return take_items();
    case State::kPayload: return receive_payload();
    case State::kReply: return send_reply();
  }
  return false;
}

Result<bool> ServedStream::receive_more() {
  want(EPOLLIN);
  if (drained_) return false;
  std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
  in_end_ -= in_begin_;
  in_begin_ = 0;
  iovec rest{in_.data() + in_end_, in_.size() - in_end_};
  ONESIDED_TRY_ASSIGN(got, receive_some(socket_.get(), {&rest, 1}));
  in_end_ += got;
  drained_ = got < rest.iov_len;
  return got > 0;
}

Result<bool> ServedStream::take_head() {
  ONESIDED_TRY_ASSIGN(head, decode_data_request_head(buffered().first(kDataRequestHeadBytes)));
  in_begin_ += kDataRequestHeadBytes;
  head_ = head;
  state_ = State::kItems;
  return true;
}

Result<bool> ServedStream::take_items() {
  const std::size_t nbytes = head_.items * kDataItemBytes;
  ONESIDED_TRY_ASSIGN(items, decode_data_items(head_, buffered().first(nbytes)));
  in_begin_ += nbytes;
  items_ = std::move(items);
  results_.assign(items_.size(), Status::kSuccess);
  moved_ = 0;
  acquire_all();
  staged_ = std::ranges::any_of(holds_, [](const RegionHold& hold) { return hold.device() != nullptr; });
  if (head_.op == DataOp::kRead) {
    begin_read();
  } else {
    begin_write();
  }
  return true;
}

// Checks and holds every item that has not failed. False: at least one item has failed now.
bool ServedStream::acquire_all() {
  const auto op = head_.op == DataOp::kRead ? Op::kRead : Op::kWrite;
  bool all = true;
  holds_.clear();
  holds_.resize(items_.size());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (results_[i] != Status::kSuccess) continue;
    auto hold = memory_.acquire(items_[i].key, items_[i].address, items_[i].nbytes, op);
    if (hold) {
      holds_[i] = std::move(*hold);
    } else {
      results_[i] = hold.error().status();
      all = false;
    }
  }
  return all;
}

std::vector<DataFailure> ServedStream::failures() const {
  std::vector<DataFailure> out;
  for (std::uint32_t i = 0; i < results_.size(); ++i) {
    if (results_[i] != Status::kSuccess) out.push_back({i, results_[i]});
  }
  return out;
}

void ServedStream::begin_read() {
  if (staged_) stage_read();
  payload_bytes_ = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (results_[i] == Status::kSuccess) payload_bytes_ += items_[i].nbytes;
  }
  const auto refused = failures();
  ByteWriter reply;
  encode_data_reply(reply, {head_.id, static_cast<std::uint32_t>(refused.size()), payload_bytes_}, refused);
  reply_ = reply.take();
  tail_ = {payload_bytes_, Status::kSuccess};
  aim_reply();
  state_ = State::kReply;
}

// Device memory is copied out completely; afterwards no region is held.
void ServedStream::stage_read() {
  staging_.resize(head_.payload_bytes);
  std::uint8_t* to = staging_.data();
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (results_[i] != Status::kSuccess) continue;
    const auto& item = items_[i];
    if (holds_[i].device() == nullptr) {
      if (!copy_unless_it_faults(to, host(item.address), item.nbytes)) {
        results_[i] = Status::kStale;
        continue;
      }
    } else if (const auto copied = holds_[i].device()->copy_to_host(to, host(item.address), item.nbytes); !copied) {
      results_[i] = copied.error().status();
      continue;
    }
    to += item.nbytes;
  }
  holds_.clear();
}

// Prepares the reply. Its head and moved_ bytes of the payload may have been sent already.
void ServedStream::aim_reply() {
  ByteWriter tail;
  encode_data_tail(tail, tail_);
  tail_bytes_ = tail.take();
  runs_.clear();
  runs_.add(reply_.data(), reply_.size());
  if (staged_) {
    runs_.add(staging_.data(), payload_bytes_);
  } else {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (results_[i] == Status::kSuccess) runs_.add(host(items_[i].address), items_[i].nbytes);
    }
  }
  runs_.add(tail_bytes_.data(), tail_bytes_.size());
}

Result<bool> ServedStream::send_reply() {
  const bool reading = head_.op == DataOp::kRead;
  // If bytes of the payload remain to be sent from registered memory, it must still be registered.
  const bool from_memory =
      reading && !staged_ && tail_.status == Status::kSuccess && runs_.left() > kDataReplyTailBytes;
  if (from_memory && holds_.empty()) {
    const auto before = results_;
    if (!acquire_all()) {
      const auto why =
          std::ranges::find_if(results_, [&, i = std::size_t{0}](Status now) mutable { return now != before[i++]; });
      const Status status = *why;
      results_ = before;  // as the reply's head has announced them
      fail_payload(status);
    }
  }
  while (!runs_.empty()) {
    auto sent = send_some(socket_.get(), runs_.front());
    if (!sent && sent.status() == Status::kStale && holds_.size() == items_.size()) {
      fail_payload(Status::kStale);
      continue;
    }
    if (!sent) return sent.error();
    if (*sent == 0) {
      holds_.clear();
      want(EPOLLOUT);
      return false;
    }
    runs_.advance(*sent);
  }
  holds_.clear();
  state_ = State::kHead;
  return true;
}

// The rest of the payload cannot be read any more: zeros of the announced length are sent, and the tail reports it.
void ServedStream::fail_payload(Status status) {
  holds_.clear();
  const std::uint64_t unsent = runs_.left() - tail_bytes_.size();
  // If the reply's head has not been sent completely, then no payload has been sent.
  const std::uint64_t payload_left = std::min(unsent, payload_bytes_);
  const std::uint64_t head_left = unsent - payload_left;
  tail_ = {payload_bytes_ - payload_left, status};
  ByteWriter tail;
  encode_data_tail(tail, tail_);
  tail_bytes_ = tail.take();
  runs_.clear();
  runs_.add(reply_.data() + (reply_.size() - head_left), head_left);
  add_repeated(runs_, zeros(), payload_left);
  runs_.add(tail_bytes_.data(), tail_bytes_.size());
}

void ServedStream::begin_write() {
  if (staged_) {
    holds_.clear();
    staging_.resize(head_.payload_bytes);
  }
  aim_payload();
  state_ = State::kPayload;
}

// Prepares the ranges for the payload, without the bytes that have arrived already.
void ServedStream::aim_payload() {
  runs_.clear();
  if (staged_) {
    runs_.add(staging_.data(), staging_.size());
  } else {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (results_[i] == Status::kSuccess) {
        runs_.add(host(items_[i].address), items_[i].nbytes);
      } else {
        add_repeated(runs_, discard_buffer(), items_[i].nbytes);
      }
    }
  }
  runs_.advance(moved_);
}

Result<bool> ServedStream::receive_payload() {
  want(EPOLLIN);
  // An initiator that cancels a WRITE aborts the connection; then the received bytes must not be applied.
  if (was_aborted(socket_.get())) return Error(Status::kPeerLost, "the peer cancelled a WRITE");
  if (!staged_ && holds_.empty() && !acquire_all()) aim_payload();
  take_buffered_payload();
  if (!runs_.empty()) {
    in_begin_ = in_end_ = 0;
    const std::uint64_t asked = runs_.left();
    const auto got = receive_some(socket_.get(), runs_.front());
    if (got.status() == Status::kStale) {
      give_up_item_under_way();
      return true;
    }
    if (!got) return got.error();
    if (*got == 0) {
      holds_.clear();
      return false;
    }
    runs_.advance(*got);
    moved_ += *got;
    drained_ = *got < asked;
    if (!runs_.empty()) return true;
  }
  if (staged_) unload_staging();
  holds_.clear();
  begin_write_reply();
  return true;
}

// Takes the part of the payload that arrived with the head.
void ServedStream::take_buffered_payload() {
  while (!buffered().empty() && !runs_.empty()) {
    bool faulted = false;
    const auto taken = runs_.fill_carefully_from(buffered().data(), buffered().size(), faulted);
    in_begin_ += taken;
    moved_ += taken;
    if (faulted) give_up_item_under_way();
  }
}

// The item's memory cannot be written: it was unmapped, or made read-only, while it was registered. The rest of its
// payload is discarded, and the other items continue.
void ServedStream::give_up_item_under_way() {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    end += items_[i].nbytes;
    if (moved_ >= end) continue;
    results_[i] = Status::kStale;
    holds_[i].release();
    break;
  }
  aim_payload();
}

void ServedStream::unload_staging() {
  acquire_all();
  const std::uint8_t* from = staging_.data();
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const auto& item = items_[i];
    if (results_[i] == Status::kSuccess) {
      if (holds_[i].device() == nullptr) {
        if (!copy_unless_it_faults(host(item.address), from, item.nbytes)) results_[i] = Status::kStale;
      } else if (const auto copied = holds_[i].device()->copy_from_host(host(item.address), from, item.nbytes);
                 !copied) {
        results_[i] = copied.error().status();
      }
    }
    from += item.nbytes;
  }
}

void ServedStream::begin_write_reply() {
  const auto refused = failures();
  ByteWriter reply;
  encode_data_reply(reply, {head_.id, static_cast<std::uint32_t>(refused.size()), 0}, refused);
  reply_ = reply.take();
  tail_bytes_.clear();
  runs_.clear();
  runs_.add(reply_.data(), reply_.size());
  state_ = State::kReply;
}

}  // namespace onesided::tcp
