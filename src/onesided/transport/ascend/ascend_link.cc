#include "onesided/transport/ascend/ascend_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "onesided/base/log.h"

namespace onesided::ascend {

namespace {

constexpr std::size_t kRequestMoves = 256;             // moves in one request: they succeed or fail together
constexpr std::uint64_t kRequestBytes = 256ULL << 20;  // and its bytes
constexpr std::size_t kMaxRequests = 64;               // in flight to one peer
constexpr std::int64_t kReconnectMs = 5000;
constexpr std::int64_t kExplainMs = 50;
constexpr std::int32_t kDisconnectMs = 50;  // cancel() guarantees an end within 100 ms
// Pause between two polls of a request, from the first to the longest.
constexpr auto kPauseMin = std::chrono::microseconds(2);
constexpr auto kPauseMax = std::chrono::microseconds(1000);

std::int32_t milliseconds_left(Deadline deadline) {
  const int left = deadline.poll_timeout_ms();
  return left < 0 ? 60'000 : std::max(left, 1);
}

}  // namespace

AscendLink::AscendLink(HixlClient& client, SegmentBook& book, Fd stream)
    : client_(client), book_(book), stream_(std::move(stream)) {}

Result<std::unique_ptr<AscendLink>> AscendLink::create(HixlClient& client, SegmentBook& book, Fd stream,
                                                       Deadline deadline) {
  std::unique_ptr<AscendLink> link(new AscendLink(client, book, std::move(stream)));
  ONESIDED_TRY(link->connect(deadline));
  try {
    link->thread_ = std::thread([raw = link.get()] { raw->work(); });
  } catch (const std::system_error& failure) {
    return Error(Status::kResourceExhausted,
                 fmt::format("ascend: cannot start the link's thread ({})", failure.what()));
  }
  return link;
}

AscendLink::~AscendLink() {
  if (thread_.joinable()) {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      wake_.notify_all();
    }
    thread_.join();
  }
  disconnect();
}

Result<void> AscendLink::connect(Deadline deadline) {
  book_version_ = book_.version();
  ONESIDED_TRY_ASSIGN(offer, stream_.ask(deadline));
  auto connected = client_.connect(offer.hixl_engine, milliseconds_left(deadline));
  if (!connected && connected.status() == Status::kAlreadyConnected) {
    // A connection of an earlier engine that ended without a disconnect; its snapshot of the memory is outdated.
    ONESIDED_TRY(client_.disconnect(offer.hixl_engine, kDisconnectMs));
    connected = client_.connect(offer.hixl_engine, milliseconds_left(deadline));
  }
  ONESIDED_TRY(connected);
  offer_ = std::move(offer);
  return {};
}

void AscendLink::disconnect() {
  if (offer_.hixl_engine.empty()) return;
  // An error means that the peer is lost: no byte can move any more in either case.
  (void)client_.disconnect(offer_.hixl_engine, kDisconnectMs);
  offer_ = Offer{};
}

void AscendLink::post(std::shared_ptr<const Batch> batch) {
  auto job = std::make_shared<Job>();
  job->batch = std::move(batch);
  MutexLock lock(mutex_);
  live_.emplace(job->batch.get(), job);
  posted_.push_back(std::move(job));
  wake_.notify_one();
}

void AscendLink::cancel(const Batch& batch, Error why) {
  MutexLock lock(mutex_);
  const auto found = live_.find(&batch);
  if (found == live_.end()) return;
  cancels_.emplace_back(found->second, std::move(why));
  wake_.notify_one();
}

void AscendLink::work() {
  auto pause = kPauseMin;
  while (take_posted(jobs_.empty())) {
    bool moved = expire();
    moved |= submit();
    moved |= poll();
    moved |= retire();
    if (moved || jobs_.empty()) {
      pause = kPauseMin;
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kPauseMax);
  }
  const Error closed(Status::kCancelled, "the link to the peer was closed");
  for (const auto& job : jobs_) job->cancelled = closed;
  tear_down(closed);
  for (const auto& job : std::exchange(jobs_, {})) end(job, closed);
}

bool AscendLink::take_posted(bool may_sleep) {
  std::vector<std::pair<std::shared_ptr<Job>, Error>> cancels;
  bool stopping = false;
  {
    MutexLock lock(mutex_);
    while (may_sleep && posted_.empty() && cancels_.empty() && !stopping_) wake_.wait(lock);
    jobs_.insert(jobs_.end(), posted_.begin(), posted_.end());
    posted_.clear();
    cancels.swap(cancels_);
    stopping = stopping_;
  }
  for (auto& [job, why] : cancels)
    if (!job->cancelled) job->cancelled = std::move(why);
  return !stopping;
}

// Ends jobs that were cancelled or whose deadline has passed. HIXL cannot cancel a request: if one is in flight, the
// connection is closed, which ends the requests of all jobs.
bool AscendLink::expire() {
  bool moved = false;
  for (const auto& job : jobs_) {
    if (!job->cancelled && job->batch->deadline.passed())
      job->cancelled = Error(Status::kTimeout, "the transfer's deadline passed");
    if (!job->cancelled) continue;
    moved = true;
    if (job->in_flight > 0)
      tear_down(Error(
          Status::kFailed,
          fmt::format(
              "the connection was closed, because another transfer ended early ({}) and HIXL cannot cancel a request",
              job->cancelled->to_string())));
    job->next = job->batch->moves.size();
  }
  return moved;
}

Result<bool> AscendLink::reaches(const Job& job) const {
  const auto& moves = job.batch->moves;
  const std::size_t end = std::min(moves.size(), job.next + kRequestMoves);
  for (std::size_t i = job.next; i < end; ++i) {
    ONESIDED_TRY_ASSIGN(version, book_.version_of(moves[i].local, moves[i].nbytes));
    if (version > book_version_) return false;
    if (!std::binary_search(offer_.regions.begin(), offer_.regions.end(), moves[i].region)) return false;
  }
  return true;
}

// One request of each job in turn, so that a huge batch does not starve a small one.
bool AscendLink::submit() {
  bool moved = false;
  for (const auto& job : jobs_) {
    if (requests_.size() >= kMaxRequests) break;
    if (job->next >= job->batch->moves.size()) continue;
    auto submitted = submit_one(job);
    if (submitted && !*submitted) continue;
    moved = true;
    if (!submitted) {
      const std::size_t first = job->next;
      job->next = std::min(job->batch->moves.size(), first + kRequestMoves);
      fail_moves(*job->batch, first, job->next - first, submitted.error());
    }
  }
  return moved;
}

// False: not now; HIXL must reconnect first, and other requests still use the old connection.
Result<bool> AscendLink::submit_one(const std::shared_ptr<Job>& job) {
  ONESIDED_TRY_ASSIGN(known, reaches(*job));
  if (!known || offer_.hixl_engine.empty()) {
    if (!requests_.empty()) return false;
    disconnect();
    ONESIDED_TRY(connect(std::min(job->batch->deadline, Deadline::after_ms(kReconnectMs))));
    ONESIDED_TRY_ASSIGN(known_now, reaches(*job));
    if (!known_now)
      return Error(Status::kStale, "the peer has not registered this region with HIXL, or has deregistered it");
  }
  const auto& moves = job->batch->moves;
  Request request{nullptr, job, job->next, 0};
  std::vector<VendorItem> items;
  std::uint64_t nbytes = 0;
  for (std::size_t i = job->next; i < moves.size() && items.size() < kRequestMoves; ++i) {
    if (!items.empty() && nbytes + moves[i].nbytes > kRequestBytes) break;
    items.push_back({moves[i].local, moves[i].remote, moves[i].nbytes});
    nbytes += moves[i].nbytes;
  }
  request.count = items.size();
  const VendorOp op = job->batch->op == Op::kRead ? VendorOp::kRead : VendorOp::kWrite;
  auto handle = client_.transfer_async(offer_.hixl_engine, op, items);
  if (!handle) return handle.error();
  request.handle = *handle;
  job->next += request.count;
  ++job->in_flight;
  requests_.push_back(std::move(request));
  return true;
}

bool AscendLink::poll() {
  bool moved = false;
  for (std::size_t i = 0; i < requests_.size();) {
    const auto status = client_.poll(requests_[i].handle);
    if (status && *status == VendorTransferStatus::kWaiting) {
      ++i;
      continue;
    }
    moved = true;
    const Request request = std::move(requests_[i]);
    requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i));
    --request.job->in_flight;
    const Batch& batch = *request.job->batch;
    if (status && *status == VendorTransferStatus::kCompleted) {
      for (std::size_t m = request.first; m < request.first + request.count; ++m)
        batch.sink->moved(m, batch.moves[m].nbytes);
    } else if (!status) {
      explain_failure(request, status.error());
    } else {
      explain_failure(request, Error(Status::kFailed, *status == VendorTransferStatus::kTimeout
                                                          ? "HIXL ended the request (TIMEOUT)"
                                                          : "HIXL could not move the bytes (FAILED)"));
    }
  }
  return moved;
}

bool AscendLink::retire() {
  bool moved = false;
  for (std::size_t i = 0; i < jobs_.size();) {
    const std::shared_ptr<Job> job = jobs_[i];
    if (job->next < job->batch->moves.size() || job->in_flight > 0) {
      ++i;
      continue;
    }
    moved = true;
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
    end(job, job->cancelled);
  }
  return moved;
}

void AscendLink::fail_moves(const Batch& batch, std::size_t first, std::size_t count, const Error& error) {
  for (std::size_t m = first; m < first + count; ++m) batch.sink->failed(m, error);
}

void AscendLink::explain_failure(const Request& request, const Error& said) {
  const Batch& batch = *request.job->batch;
  const auto offer = stream_.ask(Deadline::after_ms(kExplainMs));
  for (std::size_t m = request.first; m < request.first + request.count; ++m) {
    const RegionKey key = batch.moves[m].region;
    if (!offer && offer.status() == Status::kPeerLost)
      batch.sink->failed(m, Error(Status::kPeerLost, said.text()));
    else if (offer && !std::binary_search(offer->regions.begin(), offer->regions.end(), key))
      batch.sink->failed(m, Error(Status::kStale, "the peer deregistered this region: " + said.text()));
    else
      batch.sink->failed(m, said);
  }
}

void AscendLink::end(const std::shared_ptr<Job>& job, std::optional<Error> rest) {
  {
    MutexLock lock(mutex_);
    live_.erase(job->batch.get());
  }
  job->batch->sink->finished(std::move(rest));
}

// Afterwards no byte of this link moves: HIXL has closed the connection.
void AscendLink::tear_down(const Error& why) {
  disconnect();
  for (const Request& request : requests_) {
    --request.job->in_flight;
    // Moves of a cancelled job are reported by finished().
    if (!request.job->cancelled) fail_moves(*request.job->batch, request.first, request.count, why);
  }
  requests_.clear();
}

}  // namespace onesided::ascend
