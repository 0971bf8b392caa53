// Tests of InboundPeers. A peer may be suspended at any moment, also while it receives regions or writes. Here the test
// plays the peer, so that it can choose the moment.
#include "onesided/engine/inbound_peers.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <deque>
#include <thread>

#include "onesided/device/host/factory.h"

namespace onesided {
namespace {

constexpr std::int64_t kTestMs = 20'000;  // far above any expected duration
constexpr std::int64_t kShortMs = 20;     // for waits that must time out

// A session to a peer that reads when the test calls read().
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
  Result<void> wait_for_capacity(Deadline) override { return {}; }
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

class InboundPeersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto registry = Registry::create(7, {&shared_host_device(), nullptr});
    ASSERT_TRUE(registry.ok());
    registry_ = std::move(*registry);
    inbound_ = std::make_unique<InboundPeers>(*registry_);
  }
  std::shared_ptr<PlayedSession> peer(bool local = true) {
    const auto session = std::make_shared<PlayedSession>(++ids_, local);
    EXPECT_TRUE(inbound_->on_accepted(session).ok());
    read(*session);
    return session;
  }
  // The peer reads what is queued, and what is then sent to it.
  void read(PlayedSession& session) {
    session.queued_ = 0;
    inbound_->on_drained(std::shared_ptr<Session>(std::shared_ptr<void>(), &session));
  }
  // Registered memory that peers can map.
  struct Memory {
    void* address;
    RegionKey key;
  };
  Memory add() {
    const auto address = shared_host_device().allocate(4096, 4096);
    EXPECT_TRUE(address.ok());
    const auto added = registry_->add(reinterpret_cast<std::uint64_t>(*address), 4096, MemType::kHost);
    EXPECT_TRUE(added.ok());
    inbound_->added(added->region);
    return {*address, added->key};
  }
  bool remove(const Memory& memory, std::int64_t timeout_ms = kTestMs) {
    EXPECT_TRUE(registry_->begin_remove(memory.key).ok());
    inbound_->dropped(memory.key);
    const auto drained = registry_->drain(
        memory.key, Deadline::after_ms(timeout_ms),
        [&](Deadline until) { return inbound_->leases_clear(memory.key, until); }, [] {});
    if (drained.ok()) {
      EXPECT_TRUE(shared_host_device().free(memory.address, 4096).ok());
    }
    return drained.ok();
  }

  std::unique_ptr<Registry> registry_;
  std::unique_ptr<InboundPeers> inbound_;
  std::uint64_t ids_ = 0;
};

// The regions that a peer derives from its messages.
std::set<RegionKey> known_regions(const PlayedSession& session) {
  std::set<RegionKey> known;
  for (const auto& message : session.sent_) {
    const auto* update = std::get_if<RegionUpdate>(&message);
    if (!update) continue;
    for (const auto& key : update->dropped) EXPECT_EQ(known.erase(key), 1U);
    for (const auto& region : update->added) EXPECT_TRUE(known.insert(region.key).second) << "sent twice";
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

TEST_F(InboundPeersTest, APeerReceivesTheTableAndEachChange) {
  const auto before = add();
  for (const bool local : {true, false}) {
    const auto session = peer(local);
    EXPECT_EQ(known_regions(*session), std::set{before.key});
    EXPECT_EQ(count_complete(*session), 1);
    const auto later = add();
    EXPECT_EQ(known_regions(*session), (std::set{before.key, later.key}));
    EXPECT_TRUE(remove(later));
    EXPECT_EQ(known_regions(*session), std::set{before.key});
    EXPECT_EQ(session->descriptors_, local ? 4U : 0U);  // table, leases, two files
    session->alive_ = false;
    inbound_->on_lost(session);
  }
  EXPECT_TRUE(remove(before));
}

TEST_F(InboundPeersTest, ASuspendedPeerCostsOneMessageAndThenReceivesTheDifference) {
  for (const bool local : {true, false}) {
    const auto session = peer(local);
    const auto stays = add();
    const auto goes = add();
    session->reads_ = false;
    const auto sent = session->sent_.size();
    session->queued_ = 1;  // the last message is still queued
    std::vector<Memory> added;
    for (int i = 0; i < 1000; ++i) remove(add());
    EXPECT_TRUE(remove(goes));
    for (int i = 0; i < 200; ++i) added.push_back(add());
    EXPECT_EQ(session->sent_.size(), sent) << "messages accumulate for a peer that does not read";
    EXPECT_TRUE(session->alive());
    // The peer reads on slowly: one message at a time.
    for (int i = 0; i < 100; ++i) read(*session);
    std::set<RegionKey> expected = {stays.key};
    for (const auto& memory : added) expected.insert(memory.key);
    EXPECT_EQ(known_regions(*session), expected);
    EXPECT_EQ(count_complete(*session), 1);
    // Then changes are sent immediately again.
    session->reads_ = true;
    added.push_back(add());
    expected.insert(added.back().key);
    EXPECT_EQ(known_regions(*session), expected);
    for (const auto& memory : added) EXPECT_TRUE(remove(memory));
    EXPECT_TRUE(remove(stays));
    inbound_->on_lost(session);
  }
}

TEST_F(InboundPeersTest, RequestsAreAnsweredOnceThePeerReads) {
  const auto memory = add();
  const auto session = peer(false);
  session->reads_ = false;
  session->queued_ = 1;
  const auto sent = session->sent_.size();
  const auto later = add();
  for (std::uint64_t tag = 1; tag <= 2000; ++tag) inbound_->on_table_request(session, TableRequest{tag});
  EXPECT_EQ(session->sent_.size(), sent);
  for (int i = 0; i < 10; ++i) read(*session);
  ASSERT_EQ(session->sent_.size(), sent + 2);
  EXPECT_EQ(known_regions(*session), (std::set{memory.key, later.key}));
  EXPECT_EQ(std::get<TableSynced>(session->sent_.back()).tag, 2000U);
  session->reads_ = true;
  inbound_->on_table_request(session, TableRequest{2001});
  EXPECT_EQ(std::get<TableSynced>(session->sent_.back()).tag, 2001U);
  EXPECT_TRUE(remove(memory));
  EXPECT_TRUE(remove(later));
}

// T0 (peer): lease | look: live | copy ............ frozen .............. | go on
// T1 (owner):                            the session ends | deregister: BUSY until it is dead or has given back
TEST_F(InboundPeersTest, TheEndOfASessionDoesNotEndAWrite) {
  for (const bool dies : {true, false}) {
    const auto memory = add();
    const auto session = peer();
    const auto page = LeasePage::map(std::move(session->lease_file_), LeasePage::kBytes);
    ASSERT_TRUE(page.ok());
    const auto cell = (*page)->take(memory.key);
    EXPECT_FALSE((*page)->revoked());
    session->alive_ = false;
    inbound_->on_lost(session);
    EXPECT_EQ(inbound_->count(), 0U);
    EXPECT_FALSE(remove(memory, kShortMs)) << "a suspended writer was forgotten with its session";
    std::thread owner([&] { EXPECT_TRUE(remove(memory)); });
    if (dies)
      session->process_ended_ = true;
    else
      (*page)->give_back(cell);
    owner.join();
  }
}

// The other order: no lease is held when the session ends, so the page is dropped; a later writer must observe that.
TEST_F(InboundPeersTest, NoLeaseIsTakenAfterTheOwnerEndedTheSession) {
  const auto memory = add();
  const auto session = peer();
  const auto page = LeasePage::map(std::move(session->lease_file_), LeasePage::kBytes);
  ASSERT_TRUE(page.ok());
  inbound_->on_lost(session);
  const auto cell = (*page)->take(memory.key);
  EXPECT_TRUE((*page)->revoked());
  EXPECT_TRUE(remove(memory, kShortMs));
  (*page)->give_back(cell);
}

}  // namespace
}  // namespace onesided
