// The `ascend` link against a vendor library that does what the test says: completion, reconnects, and the end of what
// the vendor cannot call back.
#include "onesided/transport/ascend/ascend_link.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "fake_hixl.h"
#include "onesided/transport/ascend/offer.h"

namespace onesided::ascend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Collects what a link tells of one batch.
class Sink : public BatchSink {
 public:
  void moved(std::size_t move, std::uint64_t nbytes) override {
    const std::lock_guard lock(mutex_);
    moved_[move] += nbytes;
  }
  void failed(std::size_t move, Error error) override {
    const std::lock_guard lock(mutex_);
    failed_.emplace(move, std::move(error));
  }
  void finished(std::optional<Error> rest) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(finished_) << "told twice";
    finished_ = true;
    rest_ = std::move(rest);
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_; });
  }
  // After wait().
  std::map<std::size_t, std::uint64_t> moved_;
  std::map<std::size_t, Error> failed_;
  std::optional<Error> rest_;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
};

class AscendLinkTest : public testing::Test {
 protected:
  AscendLinkTest() {
    void* library = dlopen(FAKE_HIXL, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    script_ = static_cast<FakeHixlScript*>(dlsym(library, "fake_hixl_script"));
    auto loaded = HixlLibrary::load(FAKE_HIXL);
    EXPECT_TRUE(loaded.ok()) << loaded.error().text();
    client_ = HixlClient::create(*loaded, "127.0.0.1:1", {{"BufferPool", "0:0"}, {"AutoConnect", "0"}}).value();
    book_ = std::make_unique<SegmentBook>(*client_);

    memory_.resize(1 << 20);
    std::iota(memory_.begin(), memory_.end(), std::uint8_t{0});
    book_->add({{1, 1}, address(0), 1 << 19, false, true, {}});
    offer_ = {1, "10.0.0.2:7", {{5, 1}}};
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    stream_ = Fd(ends[0]);
    served_ = Fd(ends[1]);
    owner_ = std::thread([this] {
      while (const auto tag = wait_request(served_)) {
        const std::lock_guard lock(offer_mutex_);
        EXPECT_TRUE(send_offer(served_, *tag, offer_, Deadline::after_ms(1000)).ok());
      }
    });
    (void)script_->take_calls();
  }
  ~AscendLinkTest() override {
    link_.reset();
    stream_.reset();
    ::shutdown(served_.get(), SHUT_RDWR);
    owner_.join();
    book_.reset();
    client_.reset();
    script_->polls_to_complete = 1;
    script_->final_status = 1;
    script_->connect_code = script_->register_code = script_->transfer_code = 0;
    script_->move_bytes = true;
    (void)script_->take_calls();
  }

  void make_link() {
    auto link = AscendLink::create(*client_, *book_, std::move(stream_), Deadline::after_ms(5000));
    ASSERT_TRUE(link.ok()) << link.error().text();
    link_ = std::move(link).value();
  }
  std::uint64_t address(std::size_t offset) { return reinterpret_cast<std::uint64_t>(memory_.data()) + offset; }
  // `count` reads of 64 bytes from the upper half ("the peer's") into the lower.
  std::shared_ptr<const Batch> reads(std::size_t count, Deadline deadline = Deadline::never(),
                                     RegionKey region = {5, 1}) {
    auto batch = std::make_shared<Batch>();
    batch->op = Op::kRead;
    batch->deadline = deadline;
    for (std::size_t i = 0; i < count; ++i)
      batch->moves.push_back(
          {.local = address(64 * i), .remote = address((1 << 19) + 64 * i), .nbytes = 64, .region = region});
    batch->sink = std::make_shared<Sink>();
    return batch;
  }
  static Sink& sink(const std::shared_ptr<const Batch>& batch) { return static_cast<Sink&>(*batch->sink); }

  FakeHixlScript* script_ = nullptr;
  std::unique_ptr<HixlClient> client_;
  std::unique_ptr<SegmentBook> book_;
  std::unique_ptr<AscendLink> link_;
  std::vector<std::uint8_t> memory_;
  std::mutex offer_mutex_;
  Offer offer_;
  Fd stream_, served_;
  std::thread owner_;
};

TEST_F(AscendLinkTest, MovesABatchInPiecesAndTellsOfEachMove) {
  make_link();
  script_->polls_to_complete = 3;
  const auto batch = reads(600);
  link_->post(batch);
  sink(batch).wait();
  EXPECT_FALSE(sink(batch).rest_.has_value());
  EXPECT_TRUE(sink(batch).failed_.empty());
  ASSERT_EQ(sink(batch).moved_.size(), 600U);
  for (const auto& [move, nbytes] : sink(batch).moved_) EXPECT_EQ(nbytes, 64U) << move;
  EXPECT_EQ(std::memcmp(memory_.data(), memory_.data() + (1 << 19), 600 * 64), 0);
  EXPECT_THAT(script_->take_calls(), ElementsAre("connect 10.0.0.2:7", "transfer 256", "transfer 256", "transfer 88"));
}

TEST_F(AscendLinkTest, ConnectIsWhereTheVendorRefusesMemory) {
  script_->connect_code = 503900;
  const auto link = AscendLink::create(*client_, *book_, std::move(stream_), Deadline::after_ms(5000));
  ASSERT_EQ(link.status(), Status::kFailed);
  EXPECT_THAT(link.error().text(), HasSubstr("Connect(10.0.0.2:7): HIXL answered 503900"));
}

TEST_F(AscendLinkTest, MemoryNewerThanTheConnectionMakesItConnectAnew) {
  make_link();
  const auto before = reads(1);
  link_->post(before);
  sink(before).wait();
  {
    const std::lock_guard lock(offer_mutex_);
    offer_ = {2, "10.0.0.2:7", {{5, 1}, {6, 1}}};  // the peer registers
  }
  const auto theirs = reads(1, Deadline::never(), {6, 1});
  link_->post(theirs);
  sink(theirs).wait();
  EXPECT_TRUE(sink(theirs).failed_.empty());

  book_->add({{2, 1}, address(1 << 19), 1 << 19, false, true, {}});  // we register
  auto ours = std::make_shared<Batch>(*reads(1));
  ours->moves[0].local = address((1 << 19) + 8192);
  ours->sink = std::make_shared<Sink>();
  link_->post(ours);
  sink(ours).wait();
  EXPECT_TRUE(sink(ours).failed_.empty());
  EXPECT_THAT(script_->take_calls(),
              ElementsAre("connect 10.0.0.2:7", "transfer 1", "disconnect 10.0.0.2:7", "connect 10.0.0.2:7",
                          "transfer 1", "register host", "disconnect 10.0.0.2:7", "connect 10.0.0.2:7", "transfer 1"));
}

TEST_F(AscendLinkTest, ARegionThePeerHasNotIsStale) {
  make_link();
  const auto batch = reads(2, Deadline::never(), {9, 9});
  link_->post(batch);
  sink(batch).wait();
  ASSERT_EQ(sink(batch).failed_.size(), 2U);
  EXPECT_EQ(sink(batch).failed_.at(0).status(), Status::kStale);
  EXPECT_TRUE(sink(batch).moved_.empty());
}

TEST_F(AscendLinkTest, MemoryThatHixlRefusedToRegisterSaysSo) {
  make_link();
  script_->register_code = 203900;
  book_->add({{2, 1}, address(1 << 19), 1 << 19, false, true, {}});
  auto batch = std::make_shared<Batch>(*reads(1));
  batch->moves[0].local = address(1 << 19);
  link_->post(batch);
  sink(batch).wait();
  ASSERT_EQ(sink(batch).failed_.size(), 1U);
  EXPECT_EQ(sink(batch).failed_.at(0).status(), Status::kResourceExhausted);
}

TEST_F(AscendLinkTest, FailedUnknownAndRefusedRequestsFailTheirMovesOnly) {
  make_link();
  for (const int status : {2, 3, 77}) {
    script_->final_status = status;
    const auto batch = reads(3);
    link_->post(batch);
    sink(batch).wait();
    ASSERT_EQ(sink(batch).failed_.size(), 3U) << status;
    EXPECT_EQ(sink(batch).failed_.at(2).status(), Status::kFailed);
    EXPECT_FALSE(sink(batch).rest_.has_value());
  }
  script_->final_status = 1;
  script_->transfer_code = 103900;
  const auto refused = reads(300);
  link_->post(refused);
  sink(refused).wait();
  EXPECT_EQ(sink(refused).failed_.size(), 300U);
  EXPECT_EQ(sink(refused).failed_.at(299).status(), Status::kParamInvalid);
  script_->transfer_code = 0;
  const auto after = reads(1);
  link_->post(after);
  sink(after).wait();
  EXPECT_EQ(sink(after).moved_.size(), 1U);
}

// T0: A and B are on their way for ever | T1: cancel(A) -> the connection goes, and B with it; C works over a new one.
TEST_F(AscendLinkTest, CancelTearsTheConnectionDownAndTheOthersSayWhy) {
  make_link();
  script_->polls_to_complete = -1;
  const auto a = reads(1);
  const auto b = reads(1);
  link_->post(a);
  link_->post(b);
  script_->wait_for("transfer 1", 2);
  link_->cancel(*a, Error(Status::kCancelled, "the caller asked"));
  sink(a).wait();
  sink(b).wait();
  ASSERT_TRUE(sink(a).rest_.has_value());
  EXPECT_EQ(sink(a).rest_->status(), Status::kCancelled);
  EXPECT_TRUE(sink(a).moved_.empty());
  EXPECT_FALSE(sink(b).rest_.has_value());
  ASSERT_EQ(sink(b).failed_.size(), 1U);
  EXPECT_THAT(sink(b).failed_.at(0).text(), HasSubstr("cannot cancel a request"));
  script_->polls_to_complete = 1;
  const auto c = reads(1);
  link_->post(c);
  sink(c).wait();
  EXPECT_EQ(sink(c).moved_.size(), 1U);
}

TEST_F(AscendLinkTest, TheDeadlineEndsABatchWhateverTheVendorDoes) {
  make_link();
  script_->polls_to_complete = -1;
  const auto batch = reads(1, Deadline::after_ms(30));
  link_->post(batch);
  sink(batch).wait();
  ASSERT_TRUE(sink(batch).rest_.has_value());
  EXPECT_EQ(sink(batch).rest_->status(), Status::kTimeout);
  const auto calls = script_->take_calls();
  EXPECT_EQ(calls.back(), "disconnect 10.0.0.2:7");
}

TEST_F(AscendLinkTest, DestroyingTheLinkEndsItsWork) {
  make_link();
  script_->polls_to_complete = -1;
  const auto batch = reads(400);
  link_->post(batch);
  script_->wait_for("transfer 144", 1);
  link_.reset();
  sink(batch).wait();
  ASSERT_TRUE(sink(batch).rest_.has_value());
  EXPECT_EQ(sink(batch).rest_->status(), Status::kCancelled);
  EXPECT_EQ(script_->take_calls().back(), "disconnect 10.0.0.2:7");
}

TEST_F(AscendLinkTest, RegistrationsHaveALimit) {
  for (std::uint32_t i = 0; i < kMaxSegments; ++i)
    book_->add({{100 + i, 1}, 0x100000000 + 0x1000ULL * i, 0x1000, true, false, {}});
  EXPECT_EQ(book_->version_of(0x100000000 + 0x1000ULL * (kMaxSegments - 1), 1).status(), Status::kResourceExhausted);
  EXPECT_TRUE(book_->version_of(0x100000000, 0x1000).ok());
  book_->forget({100, 1});
  book_->add({{100, 2}, 0x100000000, 0x1000, true, false, {}});
  EXPECT_TRUE(book_->version_of(0x100000000, 0x1000).ok());
  std::uint64_t version = 0;
  EXPECT_EQ(book_->keys(version).size(), kMaxSegments);
}

}  // namespace
}  // namespace onesided::ascend
