#include "onesided/engine/framed_socket.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "onesided/base/align.h"
#include "onesided/wire/control.h"

namespace onesided {
namespace {

constexpr std::size_t kTagBytes = 16;
constexpr std::size_t kReadBytes = 64 * kKiB;
constexpr std::size_t kFillBytes = kMiB;

Key frame_tag(const Key& key, std::uint64_t sequence, Bytes frame) {
  ByteWriter number;
  number.u64(sequence);
  return keyed_hash(key, "onesided 1 frame", {number.bytes(), frame});
}

Error broken(int error) {
  if (error == ENFILE || error == EMFILE)
    return Error(Status::kResourceExhausted, "this process has no descriptor left for one that the peer passed");
  return Error(Status::kPeerLost, fmt::format("the connection broke: {}", std::strerror(error)));
}

}  // namespace

FramedSocket::FramedSocket(Fd socket, bool passes_fds)
    : socket_number_(socket.get()), passes_fds_(passes_fds), socket_(std::move(socket)) {}

bool FramedSocket::whole_frame_waits() const {
  const Bytes waiting = Bytes(in_).subspan(in_taken_);
  if (waiting.size() < kFrameHeaderBytes) return false;
  const auto header = decode_frame_header(waiting.first<kFrameHeaderBytes>());
  // next() reports the error.
  return !header || waiting.size() >= kFrameHeaderBytes + header->payload_bytes + (receive_seal_ ? kTagBytes : 0);
}

Result<bool> FramedSocket::fill() {
  if (in_taken_ > 0) {
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(in_taken_));
    in_taken_ = 0;
  }
  for (std::size_t total = 0; total < kFillBytes;) {
    // Descriptors arrive with the first byte of their frame, so those of later frames can be left in the socket while a
    // complete frame is buffered. A burst of a thousand small frames must not use a thousand descriptors at the same
    // time.
    if (in_fds_.size() >= kMaxAttachedFds && whole_frame_waits()) return true;
    const std::size_t before = in_.size();
    in_.resize(before + kReadBytes);
    iovec part{in_.data() + before, kReadBytes};
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxAttachedFds * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (passes_fds_) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
    }
    const auto got = ::recvmsg(socket_number_, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    const int error = errno;
    in_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0) {
      if (error == EINTR) continue;
      if (error == EAGAIN || error == EWOULDBLOCK) return false;
      return broken(error);
    }
    for (auto* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
        in_fds_.emplace_back(fd);
      }
    }
    fds_lost_ = fds_lost_ || (message.msg_flags & MSG_CTRUNC) != 0;
    if (fds_lost_) return broken(EMFILE);
    if (got == 0) return Error(Status::kPeerLost, "the peer closed the connection");
    if (in_fds_.size() > kMaxAttachedFds && !whole_frame_waits())
      return Error(Status::kParamInvalid,
                   fmt::format("{} descriptors were passed that no frame announces", in_fds_.size()));
    total += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < kReadBytes && !passes_fds_) return false;
  }
  return true;
}

Result<std::optional<Frame>> FramedSocket::next(FrameKind expected) {
  const Bytes waiting = Bytes(in_).subspan(in_taken_);
  if (waiting.size() < kFrameHeaderBytes) return std::optional<Frame>();
  ONESIDED_TRY_ASSIGN(header, decode_frame_header(waiting.first<kFrameHeaderBytes>()));
  if (header.kind != expected)
    return Error(Status::kParamInvalid, fmt::format("a frame of kind {} where kind {} is expected",
                                                    static_cast<int>(header.kind), static_cast<int>(expected)));
  const std::size_t body = kFrameHeaderBytes + header.payload_bytes;
  const std::size_t whole = body + (receive_seal_ ? kTagBytes : 0);
  if (waiting.size() < whole) return std::optional<Frame>();
  if (receive_seal_) {
    const auto tag = frame_tag(receive_seal_->key, receive_seal_->sequence++, waiting.first(body));
    if (!equal_secret(Bytes(tag).first(kTagBytes), waiting.subspan(body, kTagBytes)))
      return Error(Status::kAuthFailed,
                   "a frame has no valid seal of this session: it was changed in transit, or forged");
  }
  if (header.fds > in_fds_.size() && fds_lost_) return broken(EMFILE);
  if (header.fds > in_fds_.size())
    return Error(Status::kParamInvalid,
                 fmt::format("a frame announces {} descriptors, {} arrived", header.fds, in_fds_.size()));
  Frame frame;
  frame.kind = header.kind;
  const auto payload = waiting.subspan(kFrameHeaderBytes, header.payload_bytes);
  frame.payload.assign(payload.begin(), payload.end());
  for (int i = 0; i < header.fds; ++i) {
    frame.fds.push_back(std::move(in_fds_.front()));
    in_fds_.pop_front();
  }
  in_taken_ += whole;
  return std::optional<Frame>(std::move(frame));
}

FramedSocket::Outgoing FramedSocket::make(FrameKind kind, Bytes payload, std::vector<Fd> fds) {
  const auto header =
      encode_frame_header({kind, static_cast<std::uint16_t>(fds.size()), static_cast<std::uint32_t>(payload.size())});
  Outgoing out;
  out.bytes.reserve(header.size() + payload.size() + kTagBytes);
  out.bytes.assign(header.begin(), header.end());
  out.bytes.insert(out.bytes.end(), payload.begin(), payload.end());
  if (send_seal_ && kind == FrameKind::kControl) {
    const auto tag = frame_tag(send_seal_->key, send_seal_->sequence++, out.bytes);
    out.bytes.insert(out.bytes.end(), tag.begin(), tag.begin() + kTagBytes);
  }
  out.fds = std::move(fds);
  return out;
}

Result<bool> FramedSocket::send(FrameKind kind, Bytes payload, std::vector<Fd> fds) {
  MutexLock lock(mutex_);
  if (!socket_.valid()) return Error(Status::kPeerLost, "the connection is closed");
  out_.push_back(make(kind, payload, std::move(fds)));
  queued_bytes_ += out_.back().bytes.size();
  return flush_locked();
}

Result<bool> FramedSocket::flush() {
  MutexLock lock(mutex_);
  return flush_locked();
}

Result<bool> FramedSocket::flush_locked() {
  if (!socket_.valid()) return Error(Status::kPeerLost, "the connection is closed");
  if (held_) return true;
  while (!out_.empty()) {
    auto& first = out_.front();
    iovec part{first.bytes.data() + first.sent, first.bytes.size() - first.sent};
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxAttachedFds * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!first.fds.empty()) {
      std::memset(control, 0, sizeof control);
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(first.fds.size() * sizeof(int));
      auto* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(first.fds.size() * sizeof(int));
      for (std::size_t i = 0; i < first.fds.size(); ++i) {
        const int fd = first.fds[i].get();
        std::memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof fd);
      }
    }
    const auto sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      crowded_ = errno == ETOOMANYREFS;
      if (errno == EAGAIN || errno == EWOULDBLOCK || crowded_) return false;
      return broken(errno);
    }
    crowded_ = false;
    first.fds.clear();  // they were sent with the first byte
    first.sent += static_cast<std::size_t>(sent);
    queued_bytes_ -= static_cast<std::size_t>(sent);
    if (first.sent == first.bytes.size()) out_.pop_front();
  }
  return true;
}

void FramedSocket::hold() {
  MutexLock lock(mutex_);
  held_ = true;
}

Result<bool> FramedSocket::release(FrameKind kind, Bytes first) {
  MutexLock lock(mutex_);
  out_.push_front(make(kind, first, {}));
  queued_bytes_ += out_.front().bytes.size();
  held_ = false;
  return flush_locked();
}

void FramedSocket::refuse(FrameKind kind, Bytes last) {
  {
    MutexLock lock(mutex_);
    out_.clear();
    out_.push_back(make(kind, last, {}));
    queued_bytes_ = out_.back().bytes.size();
    held_ = false;
    // A few hundred bytes fit the buffer of a new connection; otherwise the peer reads only the end of the stream.
    [[maybe_unused]] const auto sent = flush_locked();
  }
  close();
}

void FramedSocket::seal(const Key& key) {
  MutexLock lock(mutex_);
  send_seal_.emplace(Seal{key, 0});
}

bool FramedSocket::descriptors_blocked() const {
  MutexLock lock(mutex_);
  return crowded_;
}

std::size_t FramedSocket::queued_bytes() const {
  MutexLock lock(mutex_);
  return queued_bytes_;
}

void FramedSocket::close() {
  MutexLock lock(mutex_);
  if (!socket_.valid()) return;
  // shutdown() also ends the connection for copies of the descriptor in forked children.
  ::shutdown(socket_.get(), SHUT_RDWR);
  socket_.reset();
  out_.clear();
  queued_bytes_ = 0;
}

Fd FramedSocket::take() {
  MutexLock lock(mutex_);
  return socket_.release();
}

}  // namespace onesided
