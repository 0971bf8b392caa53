#include "onesided/engine/auth.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "onesided/base/fd.h"
#include "onesided/wire/bytes.h"

namespace onesided {
namespace {

Bytes bytes_of(std::string_view text) { return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}; }

}  // namespace

Key keyed_hash(Bytes key, std::string_view label, std::initializer_list<Bytes> parts) {
  ByteWriter input;
  input.string(label);
  for (const auto part : parts) {
    input.u64(part.size());
    input.raw(part);
  }
  Key out{};
  unsigned int size = 0;
  const auto* done = ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), input.bytes().data(), input.size(),
                            out.data(), &size);
  ONESIDED_CHECK(done != nullptr && size == out.size(), "HMAC-SHA256 is not available in libcrypto (size={})", size);
  return out;
}

bool equal_secret(Bytes a, Bytes b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

SessionKeys SessionKeys::derive(Bytes master) {
  return {keyed_hash(master, "onesided 1 frames to listener", {}),
          keyed_hash(master, "onesided 1 frames to dialer", {}), keyed_hash(master, "onesided 1 streams", {})};
}

Proof client_proof(std::string_view secret, Bytes greeting, Bytes client_hello) {
  return keyed_hash(bytes_of(secret), "onesided 1 dialer proves", {greeting, proven_part(client_hello)});
}

Proof server_proof(std::string_view secret, Bytes greeting, Bytes client_hello, Bytes server_hello) {
  return keyed_hash(bytes_of(secret), "onesided 1 listener proves",
                    {greeting, client_hello, proven_part(server_hello)});
}

Key session_master(std::string_view secret, Bytes greeting, Bytes client_hello, Bytes server_hello) {
  return keyed_hash(bytes_of(secret), "onesided 1 session", {greeting, client_hello, proven_part(server_hello)});
}

Proof stream_open_proof(const Key& streams, Bytes greeting, Bytes stream_open) {
  return keyed_hash(streams, "onesided 1 stream open", {greeting, proven_part(stream_open)});
}

Proof stream_accept_proof(const Key& streams, Bytes greeting, Bytes stream_open) {
  return keyed_hash(streams, "onesided 1 stream accept", {greeting, stream_open});
}

Result<std::string> read_secret_file(const std::string& path) {
  const auto invalid = [&](std::string_view text) {
    return Error(Status::kParamInvalid, fmt::format("auth_secret_file '{}': {}", path, text));
  };
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) {
    const auto status = errno == ENOENT ? Status::kNotFound : Status::kParamInvalid;
    return Error(status, fmt::format("auth_secret_file '{}': {}", path, std::strerror(errno)));
  }
  struct stat info{};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return invalid("not a regular file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    return invalid(fmt::format("belongs to uid {}, must belong to you (uid {}) or root", info.st_uid, ::geteuid()));
  if ((info.st_mode & 077) != 0)
    return invalid(fmt::format("is open to others (mode {:o}); run: chmod 600 '{}'", info.st_mode & 0777, path));
  std::string secret(kMaxSecretBytes + 3, '\0');
  std::size_t size = 0;
  while (size < secret.size()) {
    const auto got = ::read(file.get(), secret.data() + size, secret.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return invalid(std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  secret.resize(size);
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.size() < kMinSecretBytes) {
    return invalid(fmt::format("holds {} bytes, at least {} are needed; for example: openssl rand -hex 32",
                               secret.size(), kMinSecretBytes));
  }
  if (secret.size() > kMaxSecretBytes) return invalid(fmt::format("holds more than {} bytes", kMaxSecretBytes));
  return secret;
}

}  // namespace onesided
