#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "onesided/transport/bounce.h"
#include "onesided/transport/cma/factory.h"

namespace onesided {
namespace {

constexpr std::size_t kMaxVectors = 1024;  // UIO_MAXIOV

// 0: any process of the same user; 1: declared processes; 2, 3: none. -1: the module is not present.
int yama_scope() {
  const Fd file(::open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC));
  char digit = 0;
  return file.valid() && ::read(file.get(), &digit, 1) == 1 ? digit - '0' : -1;
}

// Internally synchronized: it has no changing state.
class CmaLink : public CopyLink {
 public:
  explicit CmaLink(const PeerInfo& peer) : pid_(peer.pid), proof_(peer.proof), proof_address_(peer.proof_address) {}

  bool carries(const RegionTraits& traits) const override { return traits.host_accessible; }
  std::optional<Failure> copy(Op op, std::span<const Move> moves) override;
  // Checks that the process id still belongs to the peer.
  Result<void> prove() const;

 private:
  struct Vectors {
    std::array<iovec, kMaxVectors> local;
    std::array<iovec, kMaxVectors> remote;
  };
  std::optional<Failure> copy_host(Op op, std::span<const Move> moves, std::size_t first) const;
  std::optional<Failure> copy_device(Op op, const Move& move, std::size_t index) const;
  Error os_error(int code) const;

  const int pid_;
  const std::uint64_t proof_;
  const std::uint64_t proof_address_;
};

Error CmaLink::os_error(int code) const {
  switch (code) {
    case ESRCH: return {Status::kPeerLost, fmt::format("process {} has ended", pid_)};
    case EPERM:
      return {Status::kUnsupported,
              fmt::format(
                  "the kernel does not let this process attach to process {} (Yama ptrace_scope {}, capabilities, or "
                  "a container's seccomp profile)",
                  pid_, yama_scope())};
    case EFAULT: return {Status::kFailed, fmt::format("memory that process {} registered is no longer mapped", pid_)};
    case ENOSYS: return {Status::kUnsupported, "this kernel has no process_vm_readv"};
    default:
      return {Status::kFailed, fmt::format("process_vm_readv or writev of process {}: {}", pid_, std::strerror(code))};
  }
}

Result<void> CmaLink::prove() const {
  std::uint64_t found = 0;
  const iovec local{&found, sizeof(found)};
  const iovec remote{reinterpret_cast<void*>(proof_address_), sizeof(found)};
  const ssize_t got = ::process_vm_readv(pid_, &local, 1, &remote, 1, 0);
  if (got < 0 && errno != EFAULT) return os_error(errno);
  if (got != sizeof(found) || found != proof_)
    return Error(Status::kPeerLost, fmt::format("process {} is no longer the peer", pid_));
  return {};
}

std::optional<CopyLink::Failure> CmaLink::copy(Op op, std::span<const Move> moves) {
  // A process id can be reused at any moment. A READ reads the proof together with the data, in one call and therefore
  // from one address space; a WRITE checks the proof before and after.
  for (std::size_t first = 0; first < moves.size();) {
    std::size_t end = first + 1;
    if (!moves[first].device)
      while (end < moves.size() && !moves[end].device && end - first < kMaxVectors - 1) ++end;
    if (op == Op::kWrite)
      if (auto proved = prove(); !proved.ok()) return Failure{first, 0, proved.error()};
    if (auto failure =
            moves[first].device ? copy_device(op, moves[first], first) : copy_host(op, moves.first(end), first))
      return failure;
    if (op == Op::kWrite)
      if (auto proved = prove(); !proved.ok()) return Failure{first, 0, proved.error()};
    first = end;
  }
  return std::nullopt;
}

std::optional<CopyLink::Failure> CmaLink::copy_host(Op op, std::span<const Move> moves, std::size_t first) const {
  static thread_local Vectors vectors;
  std::uint64_t skip = 0;  // bytes of moves[first] that are done: the kernel may stop in the middle of a move
  while (first < moves.size()) {
    std::size_t count = 0;
    std::uint64_t wanted = 0;
    for (std::size_t i = first; i < moves.size(); ++i, ++count) {
      const std::uint64_t from = i == first ? skip : 0;
      vectors.local[count] = {reinterpret_cast<void*>(moves[i].local + from), moves[i].nbytes - from};
      vectors.remote[count] = {reinterpret_cast<void*>(moves[i].remote + from), moves[i].nbytes - from};
      wanted += moves[i].nbytes - from;
    }
    std::uint64_t found = 0;
    ssize_t got = 0;
    if (op == Op::kRead) {
      vectors.local[count] = {&found, sizeof(found)};
      vectors.remote[count] = {reinterpret_cast<void*>(proof_address_), sizeof(found)};
      got = ::process_vm_readv(pid_, vectors.local.data(), count + 1, vectors.remote.data(), count + 1, 0);
      if (got == static_cast<ssize_t>(wanted + sizeof(found))) {
        if (found == proof_) return std::nullopt;
        return Failure{first, 0, Error(Status::kPeerLost, fmt::format("process {} is no longer the peer", pid_))};
      }
    } else {
      got = ::process_vm_writev(pid_, vectors.local.data(), count, vectors.remote.data(), count, 0);
      if (got == static_cast<ssize_t>(wanted)) return std::nullopt;
    }
    if (got <= 0) {
      const int code = got < 0 ? errno : EFAULT;
      return Failure{first, skip, os_error(code)};
    }
    // A short count: this call does not prove from which process the bytes came.
    if (auto proved = prove(); !proved.ok()) return Failure{first, 0, proved.error()};
    auto left = std::min(static_cast<std::uint64_t>(got), wanted);
    while (first < moves.size() && left >= moves[first].nbytes - skip) {
      left -= moves[first].nbytes - skip;
      skip = 0;
      ++first;
    }
    skip += left;
  }
  return std::nullopt;
}

std::optional<CopyLink::Failure> CmaLink::copy_device(Op op, const Move& move, std::size_t index) const {
  void* buffer = thread_bounce_buffer();
  auto* local = reinterpret_cast<void*>(move.local);
  Move staged = move;
  staged.local = reinterpret_cast<std::uintptr_t>(buffer);
  staged.device = nullptr;
  if (op == Op::kWrite) {
    if (auto copied = move.device->copy_to_host(buffer, local, move.nbytes); !copied.ok())
      return Failure{index, 0, copied.error()};
  }
  if (auto failure = copy_host(op, std::span(&staged, 1), 0)) return Failure{index, 0, failure->error};
  if (op == Op::kRead) {
    if (auto copied = move.device->copy_from_host(local, buffer, move.nbytes); !copied.ok())
      return Failure{index, 0, copied.error()};
  }
  return std::nullopt;
}

class CmaTransport : public Transport {
 public:
  std::string_view name() const override { return "cma"; }
  Result<void> reach(const PeerInfo& peer) override {
    if (!peer.local) return Error(Status::kUnsupported, "the peer is not a process of this host and user");
    if (std::find(peer.transports.begin(), peer.transports.end(), name()) == peer.transports.end())
      return Error(Status::kUnsupported, "the peer's engine does not serve cma");
    if (peer.pid <= 0 || peer.proof_address == 0)
      return Error(Status::kUnsupported, "the peer's process has no id in this container");
    return {};
  }
  Result<AnyLink> connect(std::shared_ptr<PeerChannel>, const PeerInfo& peer, Deadline) override {
    ONESIDED_TRY(reach(peer));
    auto link = std::make_unique<CmaLink>(peer);
    ONESIDED_TRY(link->prove());
    return AnyLink(std::unique_ptr<CopyLink>(std::move(link)));
  }
  void peer_accepted(const PeerInfo& peer) override {
    if (peer.local && yama_scope() == 1) ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(peer.pid), 0, 0, 0);
  }
};

}  // namespace

std::unique_ptr<Transport> make_cma_transport() { return std::make_unique<CmaTransport>(); }

}  // namespace onesided
