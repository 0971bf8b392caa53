#include "ascend_sim/hccl/collective.h"

#include <fmt/format.h>

#include <algorithm>

#include "ascend_sim/acl/sim_api.h"
#include "ascend_sim/hccl/element.h"
#include "onesided/base/align.h"
#include "onesided/base/copy.h"

namespace onesided::sim::hccl {
namespace {

const char* kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::kNone: return "nothing";
    case OpKind::kBarrier: return "barrier";
    case OpKind::kBroadcast: return "broadcast";
    case OpKind::kAllReduce: return "all-reduce";
    case OpKind::kReduce: return "reduce";
    case OpKind::kReduceScatter: return "reduce-scatter";
    case OpKind::kAllGather: return "all-gather";
    case OpKind::kScatter: return "scatter";
    case OpKind::kAllToAll: return "all-to-all";
    case OpKind::kSend: return "send";
  }
  return "unknown operation";
}

std::string describe(const Signature& signature) {
  return fmt::format("{} of {} x {}, reduction {}, root {}", kind_name(signature.kind), signature.count,
                     element_name(signature.data_type), signature.reduce, signature.root);
}

// One operation of one rank while it runs. Confined to one thread.
class Running {
 public:
  Running(Communicator& group, std::uint64_t op, const CollectiveRequest& request, const Patience& patience)
      : group_(group), op_(op), request_(request), patience_(patience), ranks_(group.ranks()), rank_(group.rank()) {}

  Result<void> run() {
    ONESIDED_TRY(publish());
    ONESIDED_TRY(expect_all());
    if (request_.signature.kind == OpKind::kAllReduce) {
      ONESIDED_TRY(on_page_ ? reduce_pages() : all_reduce());
    } else if (request_.reduced) {
      ONESIDED_TRY(reduce_parts());
    } else {
      ONESIDED_TRY(take_parts());
    }
    group_.finish(op_);
    return on_page_ ? Result<void>() : wait_for_readers();
  }

 private:
  // The peer `distance` places after this rank: each starts with another one.
  std::uint32_t after(std::uint32_t distance) const { return (rank_ + distance) % ranks_; }

  Result<void> publish() {
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {  // the slot still shows operation op - 2
      const PageHead& head = group_.page(peer).head();
      ONESIDED_TRY(
          group_.wait(peer, patience_, [&] { return head.finished.load(std::memory_order_acquire) + 2 >= op_; }));
    }
    OpRecord record;
    record.signature = request_.signature;
    on_page_ = request_.source_bytes <= kInlineBytes;
    if (on_page_) {
      record.source.on_page = 1;
      record.source.nbytes = request_.source_bytes;
    } else {
      ONESIDED_TRY_ASSIGN(source, offer(request_.source, request_.source_bytes));
      record.source = source;
      if (request_.signature.kind == OpKind::kAllReduce) {
        ONESIDED_TRY_ASSIGN(result, offer(request_.reduced, request_.reduced_bytes));
        record.result = result;
      }
    }
    group_.publish(op_, record, request_.parts, request_.source);
    return {};
  }

  // Makes memory readable for the ranks that cannot map it.
  Result<BufferRef> offer(const std::byte* address, std::uint64_t nbytes) {
    const BufferRef ref = locate(address, nbytes);
    bool all_map = true;
    for (std::uint32_t peer = 0; peer < ranks_; ++peer)
      all_map = all_map && (group_.in_this_process(peer) || (group_.on_this_host(peer) && ref.file >= 0));
    if (!all_map) {
      ONESIDED_TRY_ASSIGN(kept, Registrations::of(group_.board()).keep(address, nbytes, patience_.deadline));
      offered_.push_back(std::move(kept));
    }
    return ref;
  }

  Result<void> expect_all() {
    for (std::uint32_t distance = 1; distance < ranks_; ++distance) {
      const std::uint32_t peer = after(distance);
      const PageHead& head = group_.page(peer).head();
      ONESIDED_TRY(group_.wait(peer, patience_, [&] { return head.published.load(std::memory_order_acquire) >= op_; }));
      const Signature& theirs = group_.page(peer).slot(op_).record.signature;
      if (!(theirs == request_.signature)) {
        return Error(Status::kParamInvalid,
                     fmt::format("operation {} of {}: rank {} calls {}, rank {} calls {}", op_, group_.name(), rank_,
                                 describe(request_.signature), peer, describe(theirs)));
      }
    }
    return {};
  }

  Result<PeerData> source_of(std::uint32_t peer) {
    const RankPage page = group_.page(peer);
    return PeerData::open(group_, peer, page.slot(op_).record.source, page.payload(op_), patience_.deadline);
  }

  Result<void> take_parts() {
    if (request_.takes.empty()) return {};
    for (std::uint32_t distance = 0; distance < ranks_; ++distance) {
      const std::uint32_t peer = after(distance);
      const Take& take = request_.takes[peer];
      if (!take.wanted) continue;
      ONESIDED_TRY_ASSIGN(part, part_of(peer, take.nbytes));
      if (take.nbytes == 0) continue;
      if (peer == rank_ && take.to == request_.source + part.offset) continue;  // in place
      ONESIDED_TRY_ASSIGN(data, source_of(peer));
      ONESIDED_TRY(data.copy_to(take.to, part.offset, take.nbytes));
    }
    return {};
  }

  // What `peer` has for this rank. PARAM_INVALID: not as much as this rank expects.
  Result<Part> part_of(std::uint32_t peer, std::uint64_t expected) {
    const Part part = group_.page(peer).parts(op_)[rank_];
    if (part.nbytes == expected) return part;
    return Error(Status::kParamInvalid,
                 fmt::format("operation {} of {} ({}): rank {} expects {} bytes of rank {}, which has {} for it", op_,
                             group_.name(), kind_name(request_.signature.kind), rank_, expected, peer, part.nbytes));
  }

  void combine(std::byte* to, const std::byte* a, const std::byte* b, std::uint64_t nbytes) const {
    const auto type = request_.signature.data_type;
    reduce_elements(to, a, b, nbytes / element_bytes(type), type, request_.signature.reduce);
  }

  // Small data of all ranks: every rank reduces all of it, in the order of ranks, so that all get the same bits.
  Result<void> reduce_pages() {
    const std::uint64_t nbytes = request_.reduced_bytes;
    const auto payload = [&](std::uint32_t peer) { return group_.page(peer).payload(op_); };
    if (ranks_ == 1) {
      std::copy_n(payload(0), nbytes, request_.reduced);
      return {};
    }
    combine(request_.reduced, payload(0), payload(1), nbytes);
    for (std::uint32_t peer = 2; peer < ranks_; ++peer)
      combine(request_.reduced, request_.reduced, payload(peer), nbytes);
    return {};
  }

  // Bytes [offset, offset + nbytes) of what this rank gets, from all ranks' data. It starts with its own, which may be
  // the memory that is written.
  Result<void> reduce_piece(std::vector<PeerData>& sources, const std::vector<std::uint64_t>& offsets, std::byte* to,
                            std::uint64_t offset, std::uint64_t nbytes) {
    ONESIDED_TRY_ASSIGN(own, sources[rank_].at(offsets[rank_] + offset, nbytes));
    const std::byte* left = own;
    for (std::uint32_t distance = 1; distance < ranks_; ++distance) {
      const std::uint32_t peer = after(distance);
      ONESIDED_TRY_ASSIGN(right, sources[peer].at(offsets[peer] + offset, nbytes));
      combine(to, left, right, nbytes);
      left = to;
    }
    if (ranks_ == 1 && to != own) copy_bytes(to, own, nbytes);
    return {};
  }

  Result<std::vector<PeerData>> all_sources() {
    std::vector<PeerData> sources;
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      ONESIDED_TRY_ASSIGN(data, source_of(peer));
      sources.push_back(std::move(data));
    }
    return sources;
  }

  static std::uint64_t piece_of(const std::vector<PeerData>& sources) {
    std::uint64_t piece = PeerData::kDirectPiece;
    for (const PeerData& data : sources) piece = std::max(piece, data.piece_bytes());
    return piece;
  }

  Result<void> reduce_parts() {
    ONESIDED_TRY_ASSIGN(sources, all_sources());
    std::vector<std::uint64_t> offsets(ranks_);
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      ONESIDED_TRY_ASSIGN(part, part_of(peer, request_.reduced_bytes));
      offsets[peer] = part.offset;
    }
    const std::uint64_t piece = piece_of(sources);
    for (std::uint64_t at = 0; at < request_.reduced_bytes; at += piece) {
      ONESIDED_TRY(
          reduce_piece(sources, offsets, request_.reduced + at, at, std::min(piece, request_.reduced_bytes - at)));
    }
    return {};
  }

  // The slice of an all-reduce that a rank reduces for all.
  Part slice(std::uint32_t rank) const {
    const std::uint64_t share = (request_.reduced_bytes / ranks_ / kSliceAlignment + 1) * kSliceAlignment;
    const std::uint64_t begin = std::min(rank * share, request_.reduced_bytes);
    return {begin, std::min(begin + share, request_.reduced_bytes) - begin};
  }

  // Each rank reduces its slice from all ranks' sources into its result, and gathers the other slices from the results.
  // A rank's source may be its result: slice s of it is read by rank s only, and overwritten here only with what rank s
  // has reduced since.
  Result<void> all_reduce() {
    ONESIDED_TRY_ASSIGN(sources, all_sources());
    std::vector<PeerData> results;
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      ONESIDED_TRY_ASSIGN(
          result, PeerData::open(group_, peer, group_.page(peer).slot(op_).record.result, nullptr, patience_.deadline));
      results.push_back(std::move(result));
    }
    std::vector<std::uint64_t> gathered(ranks_, 0);
    const Part own = slice(rank_);
    const std::vector<std::uint64_t> offsets(ranks_, own.offset);
    const std::uint64_t piece = piece_of(sources);
    for (std::uint64_t done = 0; done < own.nbytes;) {
      const std::uint64_t nbytes = std::min(piece, own.nbytes - done);
      ONESIDED_TRY(reduce_piece(sources, offsets, request_.reduced + own.offset + done, done, nbytes));
      group_.progress(op_, done += nbytes);
      // What others have just reduced is still in the caches. Nothing is waited for.
      for (std::uint32_t distance = 1; distance < ranks_; ++distance)
        ONESIDED_TRY(gather(after(distance), results, gathered));
    }
    for (std::uint32_t distance = 1; distance < ranks_; ++distance) {
      const std::uint32_t peer = after(distance);
      while (gathered[peer] < slice(peer).nbytes) {
        ONESIDED_TRY(group_.wait(peer, patience_, [&] { return reduced_by(peer) > gathered[peer]; }));
        ONESIDED_TRY(gather(peer, results, gathered));
      }
    }
    return {};
  }

  std::uint64_t reduced_by(std::uint32_t peer) const {
    return group_.page(peer).slot(op_).progress.load(std::memory_order_acquire);
  }

  Result<void> gather(std::uint32_t peer, std::vector<PeerData>& results, std::vector<std::uint64_t>& gathered) {
    const std::uint64_t ready = std::min(reduced_by(peer), slice(peer).nbytes);
    if (ready <= gathered[peer]) return {};
    const std::uint64_t at = slice(peer).offset + gathered[peer];
    ONESIDED_TRY(results[peer].copy_to(request_.reduced + at, at, ready - gathered[peer]));
    gathered[peer] = ready;
    return {};
  }

  Result<void> wait_for_readers() {
    for (std::uint32_t distance = 1; distance < ranks_; ++distance) {
      const std::uint32_t peer = after(distance);
      if (request_.parts[peer].nbytes == 0) continue;
      const PageHead& head = group_.page(peer).head();
      ONESIDED_TRY(group_.wait(peer, patience_, [&] { return head.finished.load(std::memory_order_acquire) >= op_; }));
    }
    return {};
  }

  static constexpr std::uint64_t kSliceAlignment = 64;  // a multiple of every element's size

  Communicator& group_;
  const std::uint64_t op_;
  const CollectiveRequest& request_;
  const Patience& patience_;
  const std::uint32_t ranks_;
  const std::uint32_t rank_;
  bool on_page_ = false;
  std::vector<std::shared_ptr<void>> offered_;
};

// A collective on its stream.
class CollectiveWork : public StreamWork {
 public:
  CollectiveWork(std::shared_ptr<Communicator> group, std::uint64_t op, CollectiveRequest request, MemoryHold hold)
      : group_(std::move(group)), op_(op), request_(std::move(request)), hold_(std::move(hold)) {
    group_->entered();
  }
  ~CollectiveWork() override {
    if (!settled_) group_->fail(Error(Status::kCancelled, "the stream dropped a collective before it began"));
    group_->left();
  }
  void refused() override { settled_ = true; }

  Result<void> run(const StopProbe& stop) override {
    settled_ = true;
    const Patience patience{group_->op_deadline(), stop};
    Result<void> ended = group_->wait_turn(op_, patience);
    if (ended.ok()) ended = run_collective(*group_, op_, request_, patience);
    if (!ended.ok()) group_->fail(ended.error());
    group_->ended(op_);
    return ended;
  }

 private:
  const std::shared_ptr<Communicator> group_;
  const std::uint64_t op_;
  const CollectiveRequest request_;
  const MemoryHold hold_;
  bool settled_ = false;  // it ran, or no stream took it
};

// Whether memory that this rank writes is also memory that others read meanwhile. Only a rank's own part of the source
// may be where its own result goes.
bool overlaps(const CollectiveRequest& request, std::uint32_t rank) {
  const std::byte* begin = request.source;
  const std::byte* end = begin + request.source_bytes;
  const auto harmful = [&](const std::byte* to, std::uint64_t nbytes, bool own) {
    if (nbytes == 0 || to >= end || begin >= to + nbytes) return false;
    return !(own && to == begin + request.parts[rank].offset && nbytes == request.parts[rank].nbytes);
  };
  for (std::uint32_t peer = 0; peer < request.takes.size(); ++peer) {
    if (harmful(request.takes[peer].to, request.takes[peer].nbytes, peer == rank)) return true;
  }
  return harmful(request.reduced, request.reduced_bytes, true);
}

}  // namespace

Result<void> run_collective(Communicator& group, std::uint64_t op, const CollectiveRequest& request,
                            const Patience& patience) {
  return Running(group, op, request, patience).run();
}

Code issue_collective(const std::shared_ptr<Communicator>& group, CollectiveRequest request, void* stream,
                      const char* function) {
  const auto refuse = [&](Code code, const std::string& words) {
    onesided_sim_fail(code, fmt::format("{}: {}", function, words).c_str());
    return code;
  };
  if (const Code code = group->failure()) return refuse(code, group->failure_text());
  if (group->suspended) return refuse(kSuspending, "the communicator is suspended; call HcclCommResume first");
  if (overlaps(request, group->rank())) return refuse(kPara, "the memory that is sent and the memory received overlap");
  MemoryHold hold;
  Result<void> held = hold.add("memory to send", request.source, request.source_bytes);
  if (held.ok()) held = hold.add("memory to receive into", request.reduced, request.reduced_bytes);
  for (const Take& take : request.takes)
    if (held.ok()) held = hold.add("memory to receive into", take.to, take.nbytes);
  if (!held.ok()) return refuse(kPara, held.error().text());
  MutexLock lock(group->issue_mutex);
  auto work = std::make_unique<CollectiveWork>(group, group->next_op, std::move(request), std::move(hold));
  if (!enqueue(stream, std::move(work))) return kRuntime;
  ++group->next_op;
  return kSuccess;
}

}  // namespace onesided::sim::hccl
