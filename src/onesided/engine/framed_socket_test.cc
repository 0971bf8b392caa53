// Tests of FramedSocket: each descriptor must arrive with the frame that it was sent with, wherever the kernel splits
// the stream and however many frames arrive at once.
#include "onesided/engine/framed_socket.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "onesided/wire/control.h"

namespace onesided {
namespace {

struct Pair {
  Pair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    writer = std::make_unique<FramedSocket>(Fd(ends[0]), true);
    reader = std::make_unique<FramedSocket>(Fd(ends[1]), true);
  }
  std::unique_ptr<FramedSocket> writer, reader;
};

// The reader finds as many frames as the kernel's buffer can hold: more descriptors than one frame may announce, all of
// them valid.
TEST(FramedSocket, ABurstOfFramesWithDescriptorsIsTakenFrameByFrame) {
  Pair pair;
  constexpr std::uint64_t kFrames = 600;
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    std::vector<Fd> fds;
    fds.emplace_back(::memfd_create("burst", MFD_CLOEXEC));
    ASSERT_EQ(::pwrite(fds[0].get(), &i, sizeof i, 0), static_cast<ssize_t>(sizeof i));
    ASSERT_TRUE(pair.writer->send(FrameKind::kControl, std::vector<std::uint8_t>{1}, std::move(fds)).ok());
  }
  std::uint64_t heard = 0;
  while (heard < kFrames) {
    ASSERT_TRUE(pair.writer->flush().ok());
    const auto filled = pair.reader->fill();
    ASSERT_TRUE(filled.ok()) << filled.error().to_string();
    std::size_t at_once = 0;
    while (true) {
      const auto frame = pair.reader->next(FrameKind::kControl);
      ASSERT_TRUE(frame.ok()) << frame.error().to_string();
      if (!*frame) break;
      ASSERT_EQ((*frame)->fds.size(), 1U);
      std::uint64_t content = ~0ULL;
      ASSERT_EQ(::pread((*frame)->fds[0].get(), &content, sizeof content, 0), static_cast<ssize_t>(sizeof content));
      ASSERT_EQ(content, heard++);
      ++at_once;
    }
    EXPECT_LE(at_once, kMaxAttachedFds) << "descriptors accumulated";
  }
}

TEST(FramedSocket, DescriptorsThatNoFrameAnnouncesAreRefused) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const Fd liar(ends[0]);
  FramedSocket reader(Fd(ends[1]), true);
  // A frame that is never completed, with a descriptor on each of its bytes.
  const auto header = encode_frame_header({FrameKind::kControl, 1, 1 << 20});
  ASSERT_EQ(::send(liar.get(), header.data(), header.size(), MSG_NOSIGNAL), static_cast<ssize_t>(header.size()));
  for (std::size_t i = 0; i < 2 * kMaxAttachedFds; ++i) {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    auto* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = liar.get();
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    ASSERT_EQ(::sendmsg(liar.get(), &message, MSG_NOSIGNAL), 1);
  }
  EXPECT_EQ(reader.fill().status(), Status::kParamInvalid);
}

}  // namespace
}  // namespace onesided
