// A guest may freeze at any moment: while it is told of memory, and in the middle of a write. Here it is played by
// the test, so that the moment can be chosen.
#include "onesided/engine/guests.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <deque>
#include <thread>

#include "onesided/device/host/factory.h"

namespace onesided {
namespace {

constexpr std::int64_t kTestMs = 20'000;  // far more than anything takes
constexpr std::int64_t kShortMs = 20;     // for what is known not to end

// A session to a guest that reads when the test says so.
class PlayedSession final : public Session {
 public:
  explicit PlayedSession(std::uint64_t id, bool local) : id_(id) { info_.local = local; }

  std::uint64_t id() const override { return id_; }
  const PeerHello& hello() const override { return hello_; }
  const PeerInfo& peer() const override { return info_; }
  bool initiated() const override { return false; }
  bool alive() const override { return alive_; }
  bool process_ended() const override { return process_ended_; }
  bool drained() const override { return reads_ || queued_ == 0; }
  Result<void> wait_for_room(Deadline) override { return {}; }
  void stop_sending(const Error&) override {}
  void close(std::string_view) override { alive_ = false; }
  Result<Fd> open_stream(std::string_view, Deadline) override { return Error(Status::kUnsupported, "played"); }
  Result<void> send(const ControlMessage& message, std::vector<Fd> fds, Deadline) override {
    ++queued_;
    descriptors_ += fds.size();
    if (std::holds_alternative<TableOffer>(message)) lease_file_ = std::move(fds.at(1));
    sent_.push_back(message);
    return {};
  }

  std::atomic<bool> process_ended_{false};
  bool alive_ = true;
  bool reads_ = true;
  int queued_ = 0;
  std::size_t descriptors_ = 0;
  Fd lease_file_;
  std::deque<ControlMessage> sent_;

 private:
  const std::uint64_t id_;
  PeerHello hello_;
  PeerInfo info_;
};

class GuestsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto registry = Registry::create(7, {&shared_host_device(), nullptr});
    ASSERT_TRUE(registry.ok());
    registry_ = std::move(*registry);
    guests_ = std::make_unique<Guests>(*registry_);
  }
  std::shared_ptr<PlayedSession> guest(bool local = true) {
    const auto session = std::make_shared<PlayedSession>(++ids_, local);
    EXPECT_TRUE(guests_->on_accepted(session).ok());
    read(*session);
    return session;
  }
  // It reads what waits, and what it is told then.
  void read(PlayedSession& session) {
    session.queued_ = 0;
    guests_->on_drained(std::shared_ptr<Session>(std::shared_ptr<void>(), &session));
  }
  // Memory that peers can map, registered.
  struct Memory {
    void* address;
    RegionKey key;
  };
  Memory add() {
    const auto address = shared_host_device().allocate(4096, 4096);
    EXPECT_TRUE(address.ok());
    const auto added = registry_->add(reinterpret_cast<std::uint64_t>(*address), 4096, MemType::kHost);
    EXPECT_TRUE(added.ok());
    guests_->added(added->region);
    return {*address, added->key};
  }
  bool remove(const Memory& memory, std::int64_t timeout_ms = kTestMs) {
    EXPECT_TRUE(registry_->begin_remove(memory.key).ok());
    guests_->dropped(memory.key);
    const auto drained = registry_->drain(
        memory.key, Deadline::after_ms(timeout_ms),
        [&](Deadline until) { return guests_->leases_clear(memory.key, until); }, [] {});
    if (drained.ok()) {
      EXPECT_TRUE(shared_host_device().free(memory.address, 4096).ok());
    }
    return drained.ok();
  }

  std::unique_ptr<Registry> registry_;
  std::unique_ptr<Guests> guests_;
  std::uint64_t ids_ = 0;
};

// What a guest makes of the messages it got.
std::set<RegionKey> known_regions(const PlayedSession& session) {
  std::set<RegionKey> known;
  for (const auto& message : session.sent_) {
    const auto* update = std::get_if<RegionUpdate>(&message);
    if (!update) continue;
    for (const auto& key : update->dropped) EXPECT_EQ(known.erase(key), 1U);
    for (const auto& region : update->added) EXPECT_TRUE(known.insert(region.key).second) << "told twice";
  }
  return known;
}

int count_complete(const PlayedSession& session) {
  int count = 0;
  for (const auto& message : session.sent_) {
    const auto* update = std::get_if<RegionUpdate>(&message);
    count += update && update->complete ? 1 : 0;
  }
  return count;
}

TEST_F(GuestsTest, AGuestIsToldWhatThereIsAndWhatChanges) {
  const auto before = add();
  for (const bool local : {true, false}) {
    const auto session = guest(local);
    EXPECT_EQ(known_regions(*session), std::set{before.key});
    EXPECT_EQ(count_complete(*session), 1);
    const auto later = add();
    EXPECT_EQ(known_regions(*session), (std::set{before.key, later.key}));
    EXPECT_TRUE(remove(later));
    EXPECT_EQ(known_regions(*session), std::set{before.key});
    EXPECT_EQ(session->descriptors_, local ? 4U : 0U);  // table, leases, two files
    session->alive_ = false;
    guests_->on_lost(session);
  }
  EXPECT_TRUE(remove(before));
}

TEST_F(GuestsTest, AFrozenGuestCostsOneMessageAndIsToldTheDifference) {
  for (const bool local : {true, false}) {
    const auto session = guest(local);
    const auto stays = add();
    const auto goes = add();
    session->reads_ = false;
    const auto told = session->sent_.size();
    session->queued_ = 1;  // the last message is still on its way
    std::vector<Memory> news;
    for (int i = 0; i < 1000; ++i) remove(add());
    EXPECT_TRUE(remove(goes));
    for (int i = 0; i < 200; ++i) news.push_back(add());
    EXPECT_EQ(session->sent_.size(), told) << "messages pile up for a guest that does not read";
    EXPECT_TRUE(session->alive());
    // It goes on, slowly: one message at a time.
    for (int i = 0; i < 100; ++i) read(*session);
    std::set<RegionKey> expected = {stays.key};
    for (const auto& memory : news) expected.insert(memory.key);
    EXPECT_EQ(known_regions(*session), expected);
    EXPECT_EQ(count_complete(*session), 1);
    // And hears of changes at once again.
    session->reads_ = true;
    news.push_back(add());
    expected.insert(news.back().key);
    EXPECT_EQ(known_regions(*session), expected);
    for (const auto& memory : news) EXPECT_TRUE(remove(memory));
    EXPECT_TRUE(remove(stays));
    guests_->on_lost(session);
  }
}

TEST_F(GuestsTest, QuestionsAreAnsweredOnceTheirAskerReads) {
  const auto memory = add();
  const auto session = guest(false);
  session->reads_ = false;
  session->queued_ = 1;
  const auto told = session->sent_.size();
  const auto later = add();
  for (std::uint64_t tag = 1; tag <= 2000; ++tag) guests_->on_table_request(session, TableRequest{tag});
  EXPECT_EQ(session->sent_.size(), told);
  for (int i = 0; i < 10; ++i) read(*session);
  ASSERT_EQ(session->sent_.size(), told + 2);
  EXPECT_EQ(known_regions(*session), (std::set{memory.key, later.key}));
  EXPECT_EQ(std::get<TableSynced>(session->sent_.back()).tag, 2000U);
  session->reads_ = true;
  guests_->on_table_request(session, TableRequest{2001});
  EXPECT_EQ(std::get<TableSynced>(session->sent_.back()).tag, 2001U);
  EXPECT_TRUE(remove(memory));
  EXPECT_TRUE(remove(later));
}

// T0 (guest): lease | look: live | copy ............ frozen .............. | go on
// T1 (owner):                            the session ends | deregister: BUSY until it is dead or has given back
TEST_F(GuestsTest, TheEndOfASessionIsNotTheEndOfAWrite) {
  for (const bool dies : {true, false}) {
    const auto memory = add();
    const auto session = guest();
    const auto page = LeasePage::map(std::move(session->lease_file_), LeasePage::kBytes);
    ASSERT_TRUE(page.ok());
    const auto cell = (*page)->take(memory.key);
    EXPECT_FALSE((*page)->revoked());
    session->alive_ = false;
    guests_->on_lost(session);
    EXPECT_EQ(guests_->count(), 0U);
    EXPECT_FALSE(remove(memory, kShortMs)) << "a frozen writer was forgotten with its session";
    std::thread owner([&] { EXPECT_TRUE(remove(memory)); });
    if (dies)
      session->process_ended_ = true;
    else
      (*page)->give_back(cell);
    owner.join();
  }
}

// The other order: nothing is leased when the session ends, so the page is dropped; whoever comes later must see it.
TEST_F(GuestsTest, NobodyLeasesFromAnOwnerWhoEndedTheSession) {
  const auto memory = add();
  const auto session = guest();
  const auto page = LeasePage::map(std::move(session->lease_file_), LeasePage::kBytes);
  ASSERT_TRUE(page.ok());
  guests_->on_lost(session);
  const auto cell = (*page)->take(memory.key);
  EXPECT_TRUE((*page)->revoked());
  EXPECT_TRUE(remove(memory, kShortMs));
  (*page)->give_back(cell);
}

}  // namespace
}  // namespace onesided
