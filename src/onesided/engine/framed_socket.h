// A stream socket as a row of frames with descriptors attached, and, once both sides share keys over TCP, each
// frame sealed, so that nobody on the way can add, drop, change or reorder one.
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

// A non-blocking Unix or TCP socket. The sending half may be used by any thread, the receiving half by one at a time.
class FramedSocket {
 public:
  // `passes_fds`: a Unix socket.
  FramedSocket(Fd socket, bool passes_fds);

  int fd() const { return socket_number_; }

  // Reads what has arrived without waiting: 1 MiB at most, and no further while the descriptors of a whole frame wait
  // to be taken with it. True: there may be more. PEER_LOST: the stream has ended; what came before can still be taken.
  // RESOURCE_EXHAUSTED: no descriptor left for one that was passed. PARAM_INVALID: more descriptors than a frame has.
  Result<bool> fill();
  // The next whole frame, nothing if there is none yet. Errors as decode_frame_header(), AUTH_FAILED for a broken seal,
  // PARAM_INVALID for a frame of another kind than `expected`.
  Result<std::optional<Frame>> next(FrameKind expected);
  // From the next frame on, seals with this key are demanded.
  void demand_seal(const Key& key) { receive_seal_.emplace(Seal{key, 0}); }
  bool drained() const { return in_.size() == in_taken_; }

  // Queues a frame and sends what the socket takes. True: all is sent; false: call flush() when the socket is writable.
  // PEER_LOST: the connection is broken or closed.
  Result<bool> send(FrameKind kind, Bytes payload, std::vector<Fd> fds = {});
  Result<bool> flush();
  // The kernel takes no more descriptors until some that are under way have been received, by whomever: it does not say
  // when, so flush() again in a while.
  bool crowded() const;
  // Holds back what is queued (while a handshake is open) until release(), which sends `first` before it.
  void hold();
  Result<bool> release(FrameKind kind, Bytes first);
  // Drops what is queued, sends this instead and closes.
  void refuse(FrameKind kind, Bytes last);
  // From the next queued control frame on, frames are sealed.
  void seal(const Key& key);
  std::size_t queued_bytes() const;
  // Ends the connection; the other end sees it. Idempotent.
  void close();
  // Gives the socket away, still connected. Nothing else may be called afterwards.
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
  bool fds_lost_ = false;  // this process had no descriptor left for one
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
