#include "ascend_sim/hccl/cases.h"

#include <algorithm>
#include <numeric>

#include "ascend_sim/hccl/element.h"

namespace onesided::sim::hccl {
namespace {

// What a type holds after a whole number was put into it, by means of the compiler's own types.
void store(std::int32_t type, std::byte* to, std::int64_t value) {
  const auto put = [&](auto typed) { std::memcpy(to, &typed, sizeof(typed)); };
  switch (static_cast<DataType>(type)) {
    case DataType::kInt8: return put(static_cast<std::int8_t>(value));
    case DataType::kInt16: return put(static_cast<std::int16_t>(value));
    case DataType::kInt32: return put(static_cast<std::int32_t>(value));
    case DataType::kInt64: return put(value);
    case DataType::kUint16: return put(static_cast<std::uint16_t>(value));
    case DataType::kUint32: return put(static_cast<std::uint32_t>(value));
    case DataType::kUint64: return put(static_cast<std::uint64_t>(value));
    case DataType::kFp16: return put(static_cast<_Float16>(value));
    case DataType::kFp32: return put(static_cast<float>(value));
    case DataType::kFp64: return put(static_cast<double>(value));
    case DataType::kBfp16:
      return put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    case DataType::kInt128: {
      put(value);
      std::memset(to + 8, 0, 8);
      return;
    }
    default: return put(static_cast<std::uint8_t>(value));  // one byte that is only moved
  }
}

constexpr DataType kTypes[] = {
    DataType::kInt8,   DataType::kInt16, DataType::kInt32,   DataType::kFp16,    DataType::kFp32,   DataType::kInt64,
    DataType::kUint64, DataType::kUint8, DataType::kUint16,  DataType::kUint32,  DataType::kFp64,   DataType::kBfp16,
    DataType::kInt128, DataType::kHif8,  DataType::kFp8E4m3, DataType::kFp8E5m2, DataType::kFp8E8m0};

bool reduces(CaseKind kind) {
  return kind == CaseKind::kAllReduce || kind == CaseKind::kReduce || kind == CaseKind::kReduceScatter ||
         kind == CaseKind::kReduceScatterV;
}

bool by_vectors(CaseKind kind) {
  return kind == CaseKind::kAllGatherV || kind == CaseKind::kReduceScatterV || kind == CaseKind::kAllToAllV ||
         kind == CaseKind::kAllToAllVC;
}

std::uint64_t sum(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::vector<std::uint64_t> offsets_of(const std::vector<std::uint64_t>& counts) {
  std::vector<std::uint64_t> offsets(counts.size(), 0);
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::uint64_t{0});
  return offsets;
}

}  // namespace

Case Case::random(std::mt19937_64& random, std::uint32_t ranks, std::uint64_t max_count) {
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  Case made;
  made.kind = static_cast<CaseKind>(below(static_cast<std::uint64_t>(CaseKind::kCount)));
  do {
    made.type = static_cast<std::int32_t>(kTypes[below(std::size(kTypes))]);
  } while (reduces(made.kind) && !reducible(made.type, 0));
  made.op = static_cast<std::int32_t>(below(4));
  made.root = static_cast<std::uint32_t>(below(ranks));
  // As often tiny as large: what fits on a page and what does not take different ways.
  made.count = std::min<std::uint64_t>(below(std::uint64_t{1} << below(24)), max_count / ranks);
  made.salt = random();
  made.in_place = below(2) == 0;
  return made;
}

std::string Case::text() const {
  return "kind " + std::to_string(static_cast<int>(kind)) + ", " + std::string(element_name(type)) + " x " +
         std::to_string(count) + ", " + std::string(reduce_name(op)) + ", root " + std::to_string(root) +
         (in_place ? ", in place" : "");
}

// How much rank `from` has for rank `to` where that may differ.
std::uint64_t CaseOnRank::length(std::uint32_t from, std::uint32_t to) const {
  switch (case_.kind) {
    case CaseKind::kAllGatherV: return (case_.salt + from * 7) % (case_.count + 1);
    case CaseKind::kReduceScatterV: return (case_.salt + to * 5) % (case_.count + 1);
    default: return (case_.salt + from * 7 + to * 5) % (case_.count + 1);
  }
}

std::uint64_t CaseOnRank::source_count() const {
  switch (case_.kind) {
    case CaseKind::kReduceScatter:
    case CaseKind::kScatter:
    case CaseKind::kAllToAll: return case_.count * ranks_;
    case CaseKind::kAllGatherV: return length(rank_, 0);
    case CaseKind::kReduceScatterV:
    case CaseKind::kAllToAllV:
    case CaseKind::kAllToAllVC: return sum(send_counts_);
    case CaseKind::kBarrier: return 0;
    default: return case_.count;
  }
}

std::uint64_t CaseOnRank::target_count() const {
  switch (case_.kind) {
    case CaseKind::kAllGather:
    case CaseKind::kAllToAll: return case_.count * ranks_;
    case CaseKind::kAllGatherV:
    case CaseKind::kAllToAllV:
    case CaseKind::kAllToAllVC: return sum(receive_counts_);
    case CaseKind::kReduceScatterV: return length(0, rank_);
    case CaseKind::kBarrier: return 0;
    default: return case_.count;
  }
}

CaseOnRank::CaseOnRank(const Case& what, std::uint32_t rank, std::uint32_t ranks)
    : case_(what), rank_(rank), ranks_(ranks) {
  for (std::uint32_t peer = 0; by_vectors(what.kind) && peer < ranks; ++peer) {
    send_counts_.push_back(length(rank, peer));
    receive_counts_.push_back(length(peer, rank));
    for (std::uint32_t to = 0; to < ranks; ++to) matrix_.push_back(length(peer, to));
  }
  send_offsets_ = offsets_of(send_counts_);
  receive_offsets_ = offsets_of(receive_counts_);
  const std::uint64_t size = element_bytes(what.type);
  source_.emplace(source_count() * size);
  target_.emplace(target_count() * size);
  for (std::uint64_t at = 0; at < source_count(); ++at) store(what.type, source_->data() + at * size, value(rank, at));
  if (what.kind == CaseKind::kBroadcast && rank == what.root)
    std::memcpy(target_->data(), source_->data(), source_->nbytes());
}

std::int64_t CaseOnRank::value(std::uint32_t rank, std::uint64_t at) const {
  const std::uint64_t mixed = (case_.salt ^ (rank * 0x9e3779b97f4a7c15U) ^ at) * 0xbf58476d1ce4e5b9U >> 40;
  // Products of up to eight of them are powers of two, which every type holds or wraps alike.
  return case_.op == static_cast<std::int32_t>(ReduceOp::kProd) ? 1 + static_cast<std::int64_t>(mixed % 2)
                                                                : static_cast<std::int64_t>(mixed % 4);
}

std::int64_t CaseOnRank::reduced(std::uint64_t at) const {
  std::int64_t result = value(0, at);
  for (std::uint32_t rank = 1; rank < ranks_; ++rank) {
    const std::int64_t next = value(rank, at);
    switch (static_cast<ReduceOp>(case_.op)) {
      case ReduceOp::kSum: result += next; break;
      case ReduceOp::kProd: result *= next; break;
      case ReduceOp::kMax: result = std::max(result, next); break;
      case ReduceOp::kMin: result = std::min(result, next); break;
    }
  }
  return result;
}

int CaseOnRank::issue(void* comm, void* stream) {
  const auto [kind, type, op, root, count, salt, in_place] = case_;
  void* from = source_->data();
  void* to = target_->data();
  switch (kind) {
    case CaseKind::kAllReduce: return HcclAllReduce(from, in_place ? from : to, count, type, op, comm, stream);
    case CaseKind::kReduce: return HcclReduce(from, in_place ? from : to, count, type, op, root, comm, stream);
    case CaseKind::kReduceScatter: return HcclReduceScatter(from, to, count, type, op, comm, stream);
    case CaseKind::kReduceScatterV:
      return HcclReduceScatterV(from, send_counts_.data(), send_offsets_.data(), to, target_count(), type, op, comm,
                                stream);
    case CaseKind::kBroadcast: return HcclBroadcast(to, count, type, root, comm, stream);
    case CaseKind::kScatter: return HcclScatter(from, to, count, type, root, comm, stream);
    case CaseKind::kAllGather: {
      if (!in_place) return HcclAllGather(from, to, count, type, comm, stream);
      std::byte* own = target_->data() + rank_ * source_->nbytes();
      std::memcpy(own, from, source_->nbytes());
      return HcclAllGather(own, to, count, type, comm, stream);
    }
    case CaseKind::kAllGatherV:
      return HcclAllGatherV(from, source_count(), to, receive_counts_.data(), receive_offsets_.data(), type, comm,
                            stream);
    case CaseKind::kAllToAll: return HcclAlltoAll(from, count, type, to, count, type, comm, stream);
    case CaseKind::kAllToAllV:
      return HcclAlltoAllV(from, send_counts_.data(), send_offsets_.data(), type, to, receive_counts_.data(),
                           receive_offsets_.data(), type, comm, stream);
    case CaseKind::kAllToAllVC: return HcclAlltoAllVC(from, matrix_.data(), type, to, type, comm, stream);
    case CaseKind::kRing: {
      SendRecvItem items[] = {{0, from, count, type, (rank_ + 1) % ranks_},
                              {1, to, count, type, (rank_ + ranks_ - 1) % ranks_}};
      return HcclBatchSendRecv(items, 2, comm, stream);
    }
    default: return HcclBarrier(comm, stream);
  }
}

void CaseOnRank::expect(std::uint64_t at, std::int64_t wanted) const {
  const bool written_to_source =
      case_.in_place && (case_.kind == CaseKind::kAllReduce || case_.kind == CaseKind::kReduce);
  const std::uint64_t size = element_bytes(case_.type);
  std::byte bytes[16] = {};
  store(case_.type, bytes, wanted);
  const std::byte* found = (written_to_source ? source_ : target_)->data() + at * size;
  ASSERT_EQ(std::memcmp(found, bytes, size), 0)
      << case_.text() << ": rank " << rank_ << " of " << ranks_ << ", element " << at << " is not " << wanted;
}

void CaseOnRank::expect_run(std::uint64_t at, std::uint64_t count, std::uint32_t rank, std::uint64_t from) const {
  for (std::uint64_t i = 0; i < count && !::testing::Test::HasFatalFailure(); ++i)
    expect(at + i, value(rank, from + i));
}

// Where lengths differ: what a rank has for this one lies behind what it has for those before.
void CaseOnRank::check_vectors() const {
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    std::uint64_t from = 0;
    for (std::uint32_t to = 0; case_.kind != CaseKind::kAllGatherV && to < rank_; ++to) from += length(peer, to);
    expect_run(receive_offsets_[peer], receive_counts_[peer], peer, from);
  }
}

void CaseOnRank::check() const {
  const std::uint64_t count = case_.count;
  const auto expect_reduced = [&](std::uint64_t from, std::uint64_t length) {
    for (std::uint64_t i = 0; i < length && !::testing::Test::HasFatalFailure(); ++i) expect(i, reduced(from + i));
  };
  switch (case_.kind) {
    case CaseKind::kAllReduce: return expect_reduced(0, count);
    case CaseKind::kReduce: return rank_ == case_.root ? expect_reduced(0, count) : void();
    case CaseKind::kReduceScatter: return expect_reduced(rank_ * count, count);
    case CaseKind::kReduceScatterV: return expect_reduced(send_offsets_[rank_], target_count());
    case CaseKind::kBroadcast: return expect_run(0, count, case_.root, 0);
    case CaseKind::kScatter: return expect_run(0, count, case_.root, rank_ * count);
    case CaseKind::kAllGather:
      for (std::uint32_t peer = 0; peer < ranks_; ++peer) expect_run(peer * count, count, peer, 0);
      return;
    case CaseKind::kAllToAll:
      for (std::uint32_t peer = 0; peer < ranks_; ++peer) expect_run(peer * count, count, peer, rank_ * count);
      return;
    case CaseKind::kAllGatherV:
    case CaseKind::kAllToAllV:
    case CaseKind::kAllToAllVC: return check_vectors();
    case CaseKind::kRing: return expect_run(0, count, (rank_ + ranks_ - 1) % ranks_, 0);
    default: return;
  }
}

}  // namespace onesided::sim::hccl
