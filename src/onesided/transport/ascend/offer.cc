#include "onesided/transport/ascend/offer.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace onesided::ascend {

namespace {

constexpr std::uint8_t kRequest = 'O';
constexpr std::size_t kMaxPayload = 4U << 20;  // more than 200,000 regions; HIXL accepts about 4,000
constexpr std::size_t kMaxName = 512;
constexpr std::size_t kTagBytes = 4, kSizeBytes = 4, kAnswerHeadBytes = kTagBytes + kSizeBytes;
constexpr std::size_t kRegionBytes = sizeof(RegionKey::index) + sizeof(RegionKey::generation);

void put(std::vector<std::uint8_t>& out, std::uint64_t value, std::size_t nbytes) {
  for (std::size_t i = 0; i < nbytes; ++i) out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

std::uint64_t get(const std::uint8_t* bytes, std::size_t nbytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < nbytes; ++i) value |= std::uint64_t{bytes[i]} << (8 * i);
  return value;
}

Error broken(std::string_view field) {
  return {Status::kParamInvalid, fmt::format("the peer's offer of ascend memory is invalid at: {}", field)};
}

// Blocks until the stream can be read or written.
Result<void> wait_ready(const Fd& stream, short events, Deadline deadline) {
  pollfd entry{stream.get(), events, 0};
  while (true) {
    const int ready = ::poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready > 0) return {};
    if (ready == 0 && deadline.passed()) return Error(Status::kTimeout, "the peer did not answer on its ascend stream");
    if (ready < 0 && errno != EINTR)
      return Error(Status::kFailed, fmt::format("poll of an ascend stream: {}", std::strerror(errno)));
  }
}

Result<void> read_exact(const Fd& stream, std::uint8_t* to, std::size_t nbytes, Deadline deadline) {
  while (nbytes > 0) {
    ONESIDED_TRY(wait_ready(stream, POLLIN, deadline));
    const ssize_t got = ::recv(stream.get(), to, nbytes, MSG_DONTWAIT);
    if (got > 0) {
      to += got;
      nbytes -= static_cast<std::size_t>(got);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Error(Status::kPeerLost, "the peer closed its ascend stream");
    }
  }
  return {};
}

Result<void> write_all(const Fd& stream, const std::uint8_t* from, std::size_t nbytes, Deadline deadline) {
  while (nbytes > 0) {
    const ssize_t sent = ::send(stream.get(), from, nbytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      from += sent;
      nbytes -= static_cast<std::size_t>(sent);
    } else if (sent < 0 && errno == EAGAIN) {
      ONESIDED_TRY(wait_ready(stream, POLLOUT, deadline));
    } else if (sent < 0 && errno != EINTR) {
      return Error(Status::kPeerLost, "the peer closed its ascend stream");
    }
  }
  return {};
}

}  // namespace

std::vector<std::uint8_t> encode_offer(const Offer& offer) {
  std::vector<std::uint8_t> out;
  out.reserve(8 + 2 + offer.hixl_engine.size() + 4 + offer.regions.size() * kRegionBytes);
  put(out, offer.meta_version, 8);
  put(out, offer.hixl_engine.size(), 2);
  out.insert(out.end(), offer.hixl_engine.begin(), offer.hixl_engine.end());
  put(out, offer.regions.size(), 4);
  for (const RegionKey& key : offer.regions) {
    put(out, key.index, sizeof(key.index));
    put(out, key.generation, sizeof(key.generation));
  }
  return out;
}

Result<Offer> decode_offer(const std::vector<std::uint8_t>& payload) {
  const std::uint8_t* at = payload.data();
  std::size_t left = payload.size();
  const auto take = [&](std::size_t nbytes) {
    const std::uint8_t* start = at;
    at += nbytes;
    left -= nbytes;
    return start;
  };
  Offer offer;
  if (left < 10) return broken("meta_version");
  offer.meta_version = get(take(8), 8);
  const auto name_bytes = static_cast<std::size_t>(get(take(2), 2));
  if (name_bytes == 0 || name_bytes > kMaxName || name_bytes > left) return broken("hixl_engine");
  const std::uint8_t* name = take(name_bytes);
  offer.hixl_engine.assign(name, name + name_bytes);
  if (left < 4) return broken("regions");
  const auto count = static_cast<std::size_t>(get(take(4), 4));
  if (count != left / kRegionBytes || left % kRegionBytes != 0) return broken("regions");
  offer.regions.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    RegionKey key;
    key.index = static_cast<decltype(key.index)>(get(take(sizeof(key.index)), sizeof(key.index)));
    key.generation = static_cast<decltype(key.generation)>(get(take(sizeof(key.generation)), sizeof(key.generation)));
    offer.regions.push_back(key);
  }
  if (!std::is_sorted(offer.regions.begin(), offer.regions.end())) return broken("order of regions");
  return offer;
}

Result<Offer> OfferStream::ask(Deadline deadline) {
  std::vector<std::uint8_t> question = {kRequest};
  put(question, ++tag_, kTagBytes);
  ONESIDED_TRY(write_all(stream_, question.data(), question.size(), deadline));
  while (true) {
    ONESIDED_TRY_ASSIGN(answer, head());
    const std::size_t whole = kAnswerHeadBytes + (answer ? answer->nbytes : 0);
    if (!answer || in_.size() < whole) {
      ONESIDED_TRY(receive(deadline));
      continue;
    }
    const auto begin = in_.begin();
    const std::vector<std::uint8_t> payload(begin + kAnswerHeadBytes, begin + static_cast<std::ptrdiff_t>(whole));
    in_.erase(begin, begin + static_cast<std::ptrdiff_t>(whole));
    if (answer->tag == tag_) return decode_offer(payload);
  }
}

Result<std::optional<OfferStream::Answer>> OfferStream::head() const {
  if (in_.size() < kAnswerHeadBytes) return std::optional<Answer>();
  Answer answer;
  answer.tag = static_cast<std::uint32_t>(get(in_.data(), kTagBytes));
  answer.nbytes = static_cast<std::size_t>(get(in_.data() + kTagBytes, kSizeBytes));
  if (answer.nbytes > kMaxPayload) return broken("size");
  return std::optional<Answer>(answer);
}

Result<void> OfferStream::receive(Deadline deadline) {
  ONESIDED_TRY(wait_ready(stream_, POLLIN, deadline));
  std::uint8_t bytes[4096];
  const ssize_t got = ::recv(stream_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
    return Error(Status::kPeerLost, "the peer closed its ascend stream");
  if (got > 0) in_.insert(in_.end(), bytes, bytes + got);
  return {};
}

std::optional<std::uint32_t> wait_request(const Fd& stream) {
  std::uint8_t request[1 + kTagBytes] = {};
  if (!read_exact(stream, request, sizeof request, Deadline::never()).ok() || request[0] != kRequest)
    return std::nullopt;
  return static_cast<std::uint32_t>(get(request + 1, kTagBytes));
}

Result<void> send_offer(const Fd& stream, std::uint32_t tag, const Offer& offer, Deadline deadline) {
  const std::vector<std::uint8_t> payload = encode_offer(offer);
  if (payload.size() > kMaxPayload) return Error(Status::kResourceExhausted, "more regions than an offer can list");
  std::vector<std::uint8_t> message;
  message.reserve(kAnswerHeadBytes + payload.size());
  put(message, tag, kTagBytes);
  put(message, payload.size(), kSizeBytes);
  message.insert(message.end(), payload.begin(), payload.end());
  return write_all(stream, message.data(), message.size(), deadline);
}

}  // namespace onesided::ascend
