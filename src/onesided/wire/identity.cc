#include "onesided/wire/identity.h"

#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "onesided/base/check.h"

namespace onesided {
namespace {

std::uint64_t inode_of(const char* path) {
  struct stat info{};
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

// "7c1ce4a5-....": 32 hex digits with dashes. Zeros if it cannot be read.
std::array<std::uint8_t, 16> read_boot_id() {
  std::array<std::uint8_t, 16> id{};
  std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re");
  if (file == nullptr) return id;
  char text[64] = {};
  const std::size_t got = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  std::size_t digits = 0;
  for (std::size_t i = 0; i < got && digits < 32; ++i) {
    const char c = text[i];
    int value = -1;
    if (c >= '0' && c <= '9') value = c - '0';
    if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
    if (value < 0) continue;
    id[digits / 2] = static_cast<std::uint8_t>(id[digits / 2] << 4 | value);
    ++digits;
  }
  return id;
}

}  // namespace

void fill_random(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto got = ::getrandom(out.data() + done, out.size() - done, 0);
    ONESIDED_CHECK(got > 0 || errno == EINTR, "getrandom: {}", std::strerror(errno));
    if (got > 0) done += static_cast<std::size_t>(got);
  }
}

InstanceId InstanceId::random() {
  InstanceId id;
  fill_random(id.bytes);
  return id;
}

std::string InstanceId::to_string() const {
  std::string text;
  for (const auto byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

HostIdentity HostIdentity::current() {
  return {read_boot_id(), inode_of("/proc/self/ns/net"), inode_of("/proc/self/ns/pid")};
}

}  // namespace onesided
