// Model check of the protocol in piece.cc, lease.h and region_table.h over all interleavings. The model consists of
// single steps: one owner repeatedly registers, deregisters and reuses its memory, and two peers read or write. The
// same explorer finds the error in every protocol that omits one step, which shows that it can find errors.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace onesided {
namespace {

enum class Role : std::uint8_t { kReader, kWriter };

// The steps of the protocol; a test removes one and expects a broken rule.
struct Protocol {
  bool look_after = true;         // a reader checks the table again after the copy
  bool lease = true;              // a writer takes a lease
  bool lease_before_look = true;  // ... before it checks the table
  bool wait_for_leases = true;    // deregister waits until no lease is held
  bool fresh_generation = true;   // an entry of the table never has the same generation twice
  bool proof = true;              // a reader verifies that the owner's process is still the same
  bool instance = true;           // descriptors are refused by an engine that did not make them
  bool revoke = true;             // an owner that ends a session revokes the page of leases before it drops the page
  bool keep_page = true;          // ... and keeps it as long as there is a lease on it
};

constexpr std::uint8_t kRounds = 3;

// A peer's registers.
struct Actor {
  std::uint8_t pc = 0;
  std::uint8_t bound = 0;              // generation
  std::array<std::uint8_t, 2> word{};  // what a reader has copied
  std::uint8_t cell = 0;               // a writer's lease
  bool foreign = false;                // copied from a process other than the connected one
  bool reconnected = false;            // to the process that replaced the owner, with old descriptors
  bool revoked = false;                // the owner has ended its session
  bool forgotten = false;              // ... and no longer checks its page
  friend auto operator<=>(const Actor&, const Actor&) = default;
};

// Each of the memory's two words contains the round in which it was filled; 0 is the owner's reuse.
struct World {
  std::uint8_t live = 0;  // the table's entry
  std::array<std::uint8_t, 2> memory{};
  std::uint8_t owner_pc = 0, round = 1;
  bool quiet = true;       // the owner may reuse the memory: no peer may write
  bool restarted = false;  // another process has taken over the owner's id
  std::array<Actor, 2> actors{};
  friend auto operator<=>(const World&, const World&) = default;
};

constexpr std::uint8_t kEnd = 99;
constexpr std::uint8_t kSuccessors = 1;    // the generation that the new process's registration has by chance
constexpr std::uint8_t kForeignByte = 77;  // the content of its memory

class Explorer {
 public:
  Explorer(Protocol protocol, std::array<Role, 2> roles) : protocol_(protocol), roles_(roles) {}

  // The first broken rule as text, or std::nullopt if all interleavings keep the rules.
  std::optional<std::string> run() {
    std::vector<World> open = {World()};
    while (!open.empty() && !broken_) {
      const World world = open.back();
      open.pop_back();
      if (!seen_.insert(world).second) continue;
      for (auto next : {owner_step(world), restart_step(world), hang_up_step(world), actor_step(world, 0),
                        actor_step(world, 1), reconnect_step(world, 0), reconnect_step(world, 1)})
        if (next) open.push_back(*next);
    }
    return broken_;
  }
  std::size_t states() const { return seen_.size(); }

 private:
  std::uint8_t generation(std::uint8_t round) const { return protocol_.fresh_generation ? round : 1; }

  std::optional<World> owner_step(World world) {
    if (world.restarted || world.round > kRounds) return std::nullopt;
    switch (world.owner_pc++) {
      case 0: world.memory[0] = world.round; return world;
      case 1: world.memory[1] = world.round; return world;
      case 2:
        world.live = generation(world.round);
        world.quiet = false;
        return world;
      case 3: world.live = 0; return world;
      case 4:
        if (protocol_.wait_for_leases)
          for (const auto& actor : world.actors)
            if (!actor.forgotten && actor.cell == generation(world.round)) return std::nullopt;  // blocked
        world.quiet = true;
        return world;
      case 5: world.memory[0] = 0; return world;
      default:
        world.memory[1] = 0;
        world.owner_pc = 0;
        ++world.round;
        return world;
    }
  }

  // The owner's process ends, and both its process id and its engine id name another process, which has registered
  // other bytes at the same address. The old table is unchanged, because peers have it mapped.
  std::optional<World> restart_step(World world) {
    if (world.restarted) return std::nullopt;
    world.restarted = true;
    world.quiet = false;  // the owner makes no further checks
    return world;
  }

  // The owner ends the session of the last actor at any time, in two steps. The actor does not notice.
  std::optional<World> hang_up_step(World world) {
    auto& actor = world.actors.back();
    if (world.restarted || actor.forgotten) return std::nullopt;
    if (protocol_.revoke && !actor.revoked) {
      actor.revoked = true;
      return world;
    }
    if (protocol_.keep_page && actor.cell != 0) return std::nullopt;  // kept
    actor.forgotten = true;
    return world;
  }

  std::optional<World> actor_step(const World& world, std::size_t which) {
    if (world.actors[which].pc == kEnd) return std::nullopt;
    return roles_[which] == Role::kReader ? read_step(world, world.actors[which], which)
                                          : write_step(world, world.actors[which], which);
  }

  // A peer that has descriptors connects to the new process and continues to use them.
  static std::optional<World> reconnect_step(const World& world, std::size_t which) {
    Actor me = world.actors[which];
    if (!world.restarted || me.pc != 1 || me.reconnected) return std::nullopt;
    me.reconnected = true;
    return with(world, which, me);
  }

  // The generation that is live in the table that the peer sees; 0 for descriptors of another instance.
  std::uint8_t seen(const World& world, const Actor& me) const {
    if (!me.reconnected) return world.live;
    return protocol_.instance ? 0 : kSuccessors;
  }

  static World with(World world, std::size_t which, const Actor& actor) {
    world.actors[which] = actor;
    return world;
  }

  std::optional<World> read_step(const World& world, Actor me, std::size_t which) {
    switch (me.pc++) {
      case 0:
        me.bound = world.live;  // submission binds to the current registration
        if (me.bound == 0) me.pc = kEnd;
        return with(world, which, me);
      case 1:
        if (seen(world, me) != me.bound) me.pc = kEnd;  // STALE
        return with(world, which, me);
      case 2:
      case 3:
        me.word[me.pc - 3] = world.restarted ? kForeignByte : world.memory[me.pc - 3];
        me.foreign = me.foreign || (world.restarted && !me.reconnected);
        return with(world, which, me);
      default:
        me.pc = kEnd;
        const bool stale = protocol_.look_after && seen(world, me) != me.bound;
        const bool found_out = protocol_.proof && me.foreign;
        if (!stale && !found_out) expect_of_one_registration(world, me);
        return with(world, which, ended(me));
    }
  }

  // The owner's state about it is kept.
  static Actor ended(const Actor& me) { return Actor{.pc = kEnd, .revoked = me.revoked, .forgotten = me.forgotten}; }

  void expect_of_one_registration(const World&, const Actor& me) {
    if (me.word[0] == kForeignByte || me.word[1] == kForeignByte)
      broken_ = "a READ succeeded with another process's bytes";
    else if (me.word[0] == 0 || me.word[1] == 0)
      broken_ = "a READ succeeded with bytes from after the deregistration";
    else if (me.word[0] != me.word[1])
      broken_ = "a READ succeeded with bytes of two registrations";
    else if (protocol_.fresh_generation && me.word[0] != me.bound)
      broken_ = "a READ succeeded with bytes of a later registration";
  }

  std::optional<World> write_step(World world, Actor me, std::size_t which) {
    const bool lease_first = protocol_.lease_before_look;
    switch (me.pc++) {
      case 0:
        me.bound = world.live;
        if (me.bound == 0) me.pc = kEnd;
        break;
      case 1:
      case 2: {
        const bool take = (me.pc == 2) == lease_first;
        if (take && protocol_.lease) me.cell = me.bound;
        if (!take && (me.revoked || seen(world, me) != me.bound)) me = ended(me);  // releases its lease
        break;
      }
      case 3:
      case 4:
        // A writer that ends with the owner, or writes to an ended owner's memory, does no harm.
        if (me.reconnected) broken_ = "a WRITE arrived in another process's memory";
        if (!world.restarted) {
          if (world.quiet) broken_ = "a WRITE arrived in memory that its owner had deregistered";
          world.memory[me.pc - 4] = me.bound;
        }
        break;
      default: me = ended(me); break;
    }
    return with(world, which, me);
  }

  const Protocol protocol_;
  const std::array<Role, 2> roles_;
  std::set<World> seen_;
  std::optional<std::string> broken_;
};

constexpr std::array<Role, 2> kMixes[] = {
    {Role::kReader, Role::kReader}, {Role::kReader, Role::kWriter}, {Role::kWriter, Role::kWriter}};

TEST(ProtocolModel, AllInterleavingsKeepTheRules) {
  for (const auto& roles : kMixes) {
    Explorer explorer(Protocol{}, roles);
    EXPECT_EQ(std::nullopt, explorer.run());
    EXPECT_GT(explorer.states(), 1000U);
  }
}

TEST(ProtocolModel, EachStepIsNeeded) {
  const auto breaks = [](Protocol protocol, std::array<Role, 2> roles) {
    return Explorer(protocol, roles).run().has_value();
  };
  EXPECT_TRUE(breaks({.look_after = false}, kMixes[0]));
  EXPECT_TRUE(breaks({.fresh_generation = false}, kMixes[0]));
  EXPECT_TRUE(breaks({.proof = false}, kMixes[0]));
  EXPECT_TRUE(breaks({.instance = false}, kMixes[0]));
  EXPECT_TRUE(breaks({.instance = false}, kMixes[2]));
  EXPECT_TRUE(breaks({.lease = false}, kMixes[2]));
  EXPECT_TRUE(breaks({.lease_before_look = false}, kMixes[2]));
  EXPECT_TRUE(breaks({.wait_for_leases = false}, kMixes[2]));
  EXPECT_TRUE(breaks({.revoke = false}, kMixes[2]));
  EXPECT_TRUE(breaks({.keep_page = false}, kMixes[2]));
}

}  // namespace
}  // namespace onesided
