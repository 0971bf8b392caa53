#include "staging.h"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "onesided/base/align.h"
#include "onesided/base/log.h"
#include "onesided/device/host/factory.h"

namespace onesided::hixl_abi {

namespace {

constexpr std::int64_t kDrainMs = 10'000;

std::int64_t milliseconds_left(Deadline deadline) {
  const int left = deadline.poll_timeout_ms();
  return left < 0 ? kDrainMs : std::max(left, 1);
}

}  // namespace

StagingBuffers::~StagingBuffers() {
  MutexLock lock(mutex_);
  for (const auto& [buffer, handle] : handles_)
    (void)shared_host_device().free(reinterpret_cast<void*>(buffer), nbytes_);
}

Result<std::uint64_t> StagingBuffers::make() {
  ONESIDED_TRY_ASSIGN(base, shared_host_device().allocate(nbytes_, kAscendPageBytes));
  const auto buffer = reinterpret_cast<std::uint64_t>(base);
  const auto handle = engine_.register_mem(buffer, nbytes_, MemType::kHost);
  if (!handle) {
    (void)shared_host_device().free(base, nbytes_);
    return handle.error();
  }
  MutexLock lock(mutex_);
  handles_.emplace(buffer, *handle);
  return buffer;
}

Result<std::uint64_t> StagingBuffers::take(Deadline deadline) {
  MutexLock lock(mutex_);
  while (free_.empty() && made_ >= count_)
    if (!changed_.wait(lock, deadline) && free_.empty() && made_ >= count_)
      return Error(Status::kTimeout, fmt::format("all {} staging buffers are in use (option BufferPool)", count_));
  if (!free_.empty()) {
    const std::uint64_t buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  ++made_;
  lock.unlock();
  auto made = make();
  if (!made) {
    lock.lock();
    --made_;
    changed_.notify_one();
  }
  return made;
}

void StagingBuffers::give_back(std::uint64_t buffer) {
  MutexLock lock(mutex_);
  free_.push_back(buffer);
  changed_.notify_one();
}

void StagingBuffers::discard(std::uint64_t buffer) {
  MutexLock lock(mutex_);
  const auto found = handles_.find(buffer);
  const MemHandle handle = found->second;
  handles_.erase(found);
  lock.unlock();
  const auto quiet = engine_.deregister_mem(handle, kDrainMs);
  if (quiet || quiet.status() == Status::kClosed)
    (void)shared_host_device().free(reinterpret_cast<void*>(buffer), nbytes_);
  else  // a living peer still writes there: the memory has to stay
    log_line(LogLevel::kError, "hixl: a staging buffer is lost: " + quiet.error().to_string());
  lock.lock();
  --made_;
  changed_.notify_one();
}

Result<void> copy_checked(std::uint64_t to, std::uint64_t from, std::uint64_t nbytes) {
  while (nbytes > 0) {
    const iovec local{reinterpret_cast<void*>(to), nbytes};
    const iovec remote{reinterpret_cast<void*>(from), nbytes};
    const ssize_t moved = ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
    if (moved <= 0)
      return Error(Status::kFailed, fmt::format("{} bytes from {:#x} to {:#x} cannot be staged: {}", nbytes, from, to,
                                                std::strerror(moved < 0 ? errno : EFAULT)));
    to += static_cast<std::uint64_t>(moved);
    from += static_cast<std::uint64_t>(moved);
    nbytes -= static_cast<std::uint64_t>(moved);
  }
  return {};
}

namespace {

// Items cut so that each group fits one buffer.
std::vector<std::vector<Item>> in_buffers(std::span<const Item> items, std::uint64_t buffer_bytes) {
  std::vector<std::vector<Item>> groups(1);
  std::uint64_t used = 0;
  for (const Item& item : items) {
    for (std::uint64_t done = 0; done < item.nbytes;) {
      if (used == buffer_bytes) {
        groups.emplace_back();
        used = 0;
      }
      const std::uint64_t step = std::min(item.nbytes - done, buffer_bytes - used);
      groups.back().push_back({item.local + done, item.remote + done, step});
      used += step;
      done += step;
    }
  }
  return groups;
}

// Between the caller's memory and a buffer, in the order of the items.
Result<void> copy_local(std::uint64_t buffer, std::span<const Item> items, bool into_buffer) {
  for (const Item& item : items) {
    ONESIDED_TRY(into_buffer ? copy_checked(buffer, item.local, item.nbytes)
                             : copy_checked(item.local, buffer, item.nbytes));
    buffer += item.nbytes;
  }
  return {};
}

Result<void> ask_stage(Conversations& conversations, const std::string& remote, Direction direction,
                       std::uint64_t buffer, std::span<const Item> items, Deadline deadline) {
  StageRequest request;
  request.to_asker = direction == Direction::kRead;
  request.buffer = buffer;
  request.timeout_ms = milliseconds_left(deadline);
  for (const Item& item : items) request.pieces.push_back({item.remote, item.nbytes});
  ONESIDED_TRY_ASSIGN(reply, conversations.ask(remote, std::move(request), deadline));
  if (reply.status != Status::kSuccess) return Error(reply.status, reply.text);
  return {};
}

// Copies between the pieces [at, at + nbytes) of a request, counted through all of them, and a buffer.
Result<void> copy_pieces(const StageRequest& request, std::uint64_t at, std::uint64_t nbytes, std::uint64_t buffer) {
  for (const Piece& piece : request.pieces) {
    if (at >= piece.nbytes) {
      at -= piece.nbytes;
      continue;
    }
    const std::uint64_t step = std::min(piece.nbytes - at, nbytes);
    const std::uint64_t address = piece.address + at;
    ONESIDED_TRY(request.to_asker ? copy_checked(buffer, address, step) : copy_checked(address, buffer, step));
    buffer += step;
    nbytes -= step;
    at = 0;
    if (nbytes == 0) break;
  }
  return {};
}

}  // namespace

Result<void> stage_transfer(StagingBuffers& buffers, Conversations& conversations, const std::string& remote,
                            Direction direction, std::span<const Item> items, Deadline deadline) {
  const bool write = direction == Direction::kWrite;
  for (const std::vector<Item>& group : in_buffers(items, buffers.nbytes())) {
    ONESIDED_TRY_ASSIGN(buffer, buffers.take(deadline));
    Result<void> done = write ? copy_local(buffer, group, true) : Result<void>();
    if (done) {
      done = ask_stage(conversations, remote, direction, buffer, group, deadline);
      if (!done) {
        // The peer may be at it still.
        buffers.discard(buffer);
        return done;
      }
      if (!write) done = copy_local(buffer, group, false);
    }
    buffers.give_back(buffer);
    ONESIDED_TRY(done);
  }
  return {};
}

StageReply stage_answer(Engine& engine, StagingBuffers& buffers, const StageRequest& request) {
  StageReply reply;
  reply.tag = request.tag;
  const auto fail = [&reply](const Error& error) {
    reply.status = error.status();
    reply.text = error.text();
    return reply;
  };
  if (!buffers.any()) return fail(Error(Status::kUnsupported, "the remote has no BufferPool"));
  const Deadline deadline = Deadline::after_ms(request.timeout_ms);
  std::uint64_t total = 0;
  for (const Piece& piece : request.pieces) total += piece.nbytes;
  const auto buffer = buffers.take(deadline);
  if (!buffer) return fail(buffer.error());
  Result<void> done;
  for (std::uint64_t at = 0; at < total && done.ok(); at += buffers.nbytes()) {
    const std::uint64_t step = std::min(buffers.nbytes(), total - at);
    const TransferItem item{*buffer, request.buffer + at, step};
    const TransferList list{.items = {&item, 1}};
    const Op op = request.to_asker ? Op::kWrite : Op::kRead;
    if (request.to_asker) done = copy_pieces(request, at, step, *buffer);
    if (done) done = engine.transfer_sync(request.reply_to, op, list, milliseconds_left(deadline));
    if (done && !request.to_asker) done = copy_pieces(request, at, step, *buffer);
  }
  buffers.give_back(*buffer);
  return done.ok() ? reply : fail(done.error());
}

}  // namespace onesided::hixl_abi
