// A stream socket that carries frames with attached descriptors. Over TCP, once both sides share keys, each frame is
// sealed: added, dropped, changed and reordered frames are detected.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "onesided/base/fd.h"
#include "onesided/base/mutex.h"
#include "onesided/base/private_fd.h"
#include "onesided/base/result.h"
#include "onesided/engine/auth.h"
#include "onesided/wire/frame.h"

namespace onesided {

struct Frame {
  FrameKind kind = FrameKind::kHandshake;
  std::vector<std::uint8_t> payload;
  std::vector<Fd> fds;
};

// A non-blocking Unix or TCP socket. Any thread may use the sending half; one thread at a time may use the receiving
// half.
class FramedSocket {
 public:
  // `passes_fds`: a Unix socket.
  FramedSocket(Fd socket, bool passes_fds);

  int fd() const { return socket_number_; }

  // Reads bytes that have arrived, without blocking: at most 1 MiB, and no further while the descriptors of a complete
  // frame are still to be taken by next(). True: there may be more. PEER_LOST: the stream has ended; frames received
  // before can still be taken. RESOURCE_EXHAUSTED: this process has no descriptor left for one that was passed.
  // PARAM_INVALID: more descriptors than the frame announces.
  Result<bool> fill();
  // The next complete frame, or std::nullopt if none has arrived. Errors: as decode_frame_header(); AUTH_FAILED for an
  // invalid seal; PARAM_INVALID for a frame of another kind than `expected`.
  Result<std::optional<Frame>> next(FrameKind expected);
  // From the next frame on, each received frame must carry a seal made with this key.
  void demand_seal(const Key& key) { receive_seal_.emplace(Seal{key, 0}); }
  bool drained() const { return in_.size() == in_taken_; }

  // Queues a frame and sends as much as the socket accepts. True: all is sent. False: call flush() when the socket is
  // writable. PEER_LOST: the connection is broken or closed.
  Result<bool> send(FrameKind kind, Bytes payload, std::vector<Fd> fds = {});
  Result<bool> flush();
  // True while the kernel accepts no more descriptors because too many of this user's are in flight. The kernel does
  // not report when this changes, so call flush() again after a delay.
  bool descriptors_blocked() const;
  // Holds queued frames back (during a handshake) until release(), which sends `first` before them.
  void hold();
  Result<bool> release(FrameKind kind, Bytes first);
  // Drops queued frames, sends this one instead and closes.
  void refuse(FrameKind kind, Bytes last);
  // Seals frames, from the next queued control frame on.
  void seal(const Key& key);
  std::size_t queued_bytes() const;
  // Ends the connection; the other end reads its end. Idempotent.
  void close();
  // Releases the socket, still connected, to the caller. No other function may be called afterwards.
  Fd take();

 private:
  struct Seal {
    Key key{};
    std::uint64_t sequence = 0;
  };
  struct Outgoing {
    std::vector<std::uint8_t> bytes;
    std::vector<Fd> fds;
    std::size_t sent = 0;
  };

  bool whole_frame_waits() const;
  Outgoing make(FrameKind kind, Bytes payload, std::vector<Fd> fds) ONESIDED_REQUIRES(mutex_);
  Result<bool> flush_locked() ONESIDED_REQUIRES(mutex_);

  const int socket_number_;
  const bool passes_fds_;

  // The receiving half.
  std::vector<std::uint8_t> in_;
  std::size_t in_taken_ = 0;
  std::deque<Fd> in_fds_;
  bool fds_lost_ = false;  // this process had no descriptor left for one that was passed
  std::optional<Seal> receive_seal_;

  mutable Mutex mutex_;
  PrivateFd socket_ ONESIDED_GUARDED_BY(mutex_);
  std::deque<Outgoing> out_ ONESIDED_GUARDED_BY(mutex_);
  std::size_t queued_bytes_ ONESIDED_GUARDED_BY(mutex_) = 0;
  bool held_ ONESIDED_GUARDED_BY(mutex_) = false;
  bool crowded_ ONESIDED_GUARDED_BY(mutex_) = false;
  std::optional<Seal> send_seal_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
