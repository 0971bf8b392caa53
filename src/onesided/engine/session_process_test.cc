// A session can end before the process at its other end does; only the kernel can tell the two cases apart.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "onesided/engine/session_fixture.h"

namespace onesided::testing {
namespace {

// A process that ends its session on request and continues to run. Started before this process has threads.
class HangingUp {
 public:
  HangingUp() {
    EXPECT_EQ(::pipe2(to_child_, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) run();
  }
  ~HangingUp() {
    kill();
    ::close(to_child_[0]);
    ::close(to_child_[1]);
  }
  void connect(const std::string& id) { say(id); }
  void hang_up() { say("now"); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  void say(std::string word) {
    word.resize(64);
    EXPECT_EQ(::write(to_child_[1], word.data(), word.size()), 64);
  }
  std::string hear() {
    char word[64] = {};
    if (::read(to_child_[0], word, sizeof word) != sizeof word) ::_exit(1);
    return word;
  }
  [[noreturn]] void run() {
    Node node;
    const auto session = node.sessions->connect(hear(), Deadline::after_ms(kTestMs));
    if (!session.ok()) ::_exit(2);
    hear();
    node.sessions->close();
    while (true) ::pause();
  }

  int to_child_[2] = {-1, -1};
  pid_t pid_ = 0;
};

TEST(SessionProcess, TheEndOfASessionDoesNotEndItsProcess) {
  HangingUp child;
  Node node;
  child.connect(node.id());
  const auto accepted = node.events.accepted();
  ASSERT_TRUE(accepted);
  EXPECT_FALSE(accepted->process_ended());
  child.hang_up();
  ASSERT_TRUE(node.events.wait_lost(1));
  EXPECT_FALSE(accepted->alive());
  EXPECT_FALSE(accepted->process_ended());
  child.kill();
  EXPECT_TRUE(accepted->process_ended());
}

}  // namespace
}  // namespace onesided::testing
