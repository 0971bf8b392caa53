#include "ceilings.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace onesided::bench {
namespace {

#if defined(__x86_64__)
void copy_strings(void* to, const void* from, std::size_t nbytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(nbytes) : : "memory");
}

__attribute__((target("avx2"))) void copy_non_temporal(char* to, const char* from, std::size_t nbytes) {
  const std::size_t head = std::min<std::size_t>(nbytes, (32 - reinterpret_cast<std::uintptr_t>(to) % 32) % 32);
  std::memcpy(to, from, head);
  to += head, from += head, nbytes -= head;
  for (; nbytes >= 128; nbytes -= 128, from += 128, to += 128)
    for (int i = 0; i < 128; i += 32)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
  _mm_sfence();
  std::memcpy(to, from, nbytes);
}
#endif

bool read_all(int fd, void* data, std::size_t nbytes) {
  for (auto* at = static_cast<char*>(data); nbytes > 0;) {
    const ssize_t got = ::recv(fd, at, std::min<std::size_t>(nbytes, 1 << 20), 0);
    if (got <= 0) return false;
    at += got, nbytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* data, std::size_t nbytes) {
  for (const auto* at = static_cast<const char*>(data); nbytes > 0;) {
    const ssize_t put = ::send(fd, at, std::min<std::size_t>(nbytes, 1 << 20), MSG_NOSIGNAL);
    if (put <= 0) return false;
    at += put, nbytes -= static_cast<std::size_t>(put);
  }
  return true;
}

void set_up(int fd, const std::string& congestion) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (!congestion.empty())
    ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.c_str(), static_cast<socklen_t>(congestion.size()));
}

void serve(int fd, const char* data) {
  std::uint64_t count = 0;
  std::vector<Range> ranges;
  while (read_all(fd, &count, sizeof(count))) {
    ranges.resize(count);
    if (!read_all(fd, ranges.data(), count * sizeof(Range))) break;
    for (const auto& range : ranges)
      if (!write_all(fd, data + range.from, range.nbytes)) break;
  }
  ::close(fd);
}

}  // namespace

std::vector<CopyWay> copy_ways() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return {CopyWay::kMemcpy, CopyWay::kStrings, CopyWay::kNonTemporal};
  return {CopyWay::kMemcpy, CopyWay::kStrings};
#else
  return {CopyWay::kMemcpy};
#endif
}

void raw_copy(CopyWay way, char* to, const char* from, std::span<const Range> ranges) {
  for (const auto& range : ranges) {
#if defined(__x86_64__)
    if (way == CopyWay::kStrings) {
      copy_strings(to + range.to, from + range.from, range.nbytes);
      continue;
    }
    if (way == CopyWay::kNonTemporal) {
      copy_non_temporal(to + range.to, from + range.from, range.nbytes);
      continue;
    }
#endif
    (void)way;
    std::memcpy(to + range.to, from + range.from, range.nbytes);
  }
}

bool raw_process_vm(int pid, char* to, const char* from, std::span<const Range> ranges) {
  constexpr std::size_t kVectors = 1024;
  iovec local[kVectors], remote[kVectors];
  for (std::size_t first = 0; first < ranges.size();) {
    std::size_t count = 0;
    std::uint64_t wanted = 0;
    for (; count < kVectors && first + count < ranges.size(); ++count) {
      const auto& range = ranges[first + count];
      local[count] = {to + range.to, range.nbytes};
      remote[count] = {const_cast<char*>(from) + range.from, range.nbytes};
      wanted += range.nbytes;
    }
    if (::process_vm_readv(pid, local, count, remote, count, 0) != static_cast<ssize_t>(wanted)) return false;
    first += count;
  }
  return true;
}

std::uint16_t serve_raw_socket(const char* data, const std::string& congestion) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  set_up(listener, congestion);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener, 8) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return 0;
  std::thread([listener, data, congestion] {
    while (true) {
      const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      set_up(fd, congestion);
      std::thread(serve, fd, data).detach();
    }
  }).detach();
  return ntohs(address.sin_port);
}

int connect_raw_socket(std::uint16_t port, const std::string& congestion) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  set_up(fd, congestion);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  ::close(fd);
  return -1;
}

bool raw_socket(int socket, char* to, std::span<const Range> ranges) {
  const std::uint64_t count = ranges.size();
  // The whole request in one segment where it fits: a ping-pong is one packet each way.
  std::vector<char> request(sizeof(count) + ranges.size_bytes());
  std::memcpy(request.data(), &count, sizeof(count));
  std::memcpy(request.data() + sizeof(count), ranges.data(), ranges.size_bytes());
  if (!write_all(socket, request.data(), request.size())) return false;
  for (const auto& range : ranges)
    if (!read_all(socket, to + range.to, range.nbytes)) return false;
  return true;
}

}  // namespace onesided::bench
