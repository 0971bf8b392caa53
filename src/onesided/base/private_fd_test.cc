#include "onesided/base/private_fd.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace onesided {
namespace {

std::pair<Fd, Fd> socket_pair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// Checks that the peer reads the end of the stream while a child of this process exists.
bool peer_sees_end(Fd& peer) {
  pollfd entry{peer.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&entry, 1, 5000) == 1 && ::recv(peer.get(), &byte, 1, 0) == 0;
}

TEST(PrivateFd, AForkedChildDoesNotKeepTheConnectionOpen) {
  auto [ours, peer] = socket_pair();
  auto [to_child, in_child] = socket_pair();
  PrivateFd kept(std::move(ours));
  const int number = kept.get();
  const pid_t child = ::fork();
  if (child == 0) {
    // The number is in use, by /dev/null.
    char byte = 0;
    const bool harmless = ::read(number, &byte, 1) == 0;
    to_child.reset();
    while (::read(in_child.get(), &byte, 1) > 0) {
    }
    ::_exit(harmless ? 0 : 1);
  }
  in_child.reset();
  kept.reset();
  EXPECT_TRUE(peer_sees_end(peer));
  to_child.reset();  // lets the child end
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(PrivateFd, AReleasedDescriptorIsInherited) {
  auto [ours, peer] = socket_pair();
  PrivateFd kept(std::move(ours));
  PrivateFd moved(std::move(kept));
  const Fd given = moved.release();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::send(given.get(), "x", 1, 0) == 1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(PrivateFd, AChildMayMakeItsOwnDescriptors) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto [ours, peer] = socket_pair();
    PrivateFd mine(std::move(ours));
    mine.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace onesided
