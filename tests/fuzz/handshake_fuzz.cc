// Fuzzes the first messages that any host on the network can send. Each message has one encoding, and no peer connects
// over TCP without the secret, whatever he says.
#include <algorithm>

#include "fuzz_target.h"
#include "onesided/base/check.h"
#include "onesided/engine/handshake.h"

namespace onesided {
namespace {

const std::string kSecret = "a secret that the fuzzer does not have";

PeerHello hello(std::uint8_t instance) {
  PeerHello out;
  out.protocol_version = kProtocolVersion;
  out.engine_id = "10.0.0.1:1";
  out.bound_address = "10.0.0.1:1";
  out.instance.bytes[0] = instance;
  out.transports = {"shm", "tcp"};
  return out;
}

void check_codec(Bytes input) {
  const auto message = decode_handshake(input);
  if (!message) return;
  ONESIDED_CHECK(std::ranges::equal(encode_handshake(*message), input), "handshake message {} has two spellings",
                 message->index());
}

void check_machines(Bytes input) {
  static const PeerHello self = hello(1);
  const auto key = [](const SessionToken&) { return std::optional<Key>(Key{9}); };
  static const ListenerHandshake listener({self, kSecret, std::nullopt});
  ONESIDED_CHECK(!listener.on_message(input, key).ok(), "a stranger got in");
  static const ListenerHandshake local({self, kSecret, UnixPeer{1, 1}});
  [[maybe_unused]] const auto opened = local.on_message(input, key);

  DialerHandshake dialer({self, kSecret, std::nullopt}, "10.0.0.2:2", "10.0.0.2:2");
  [[maybe_unused]] const auto greeted = dialer.on_greeting(input);
  DialerHandshake answered({self, kSecret, std::nullopt}, "10.0.0.2:2", "10.0.0.2:2");
  ONESIDED_CHECK(answered.on_greeting(listener.greeting()).ok(), "our own greeting was refused");
  ONESIDED_CHECK(!answered.on_reply(input).ok(), "a stranger was believed");
  StreamHandshake stream(SessionToken{}, Key{9}, "tcp");
  ONESIDED_CHECK(stream.on_greeting(listener.greeting()).ok(), "our own greeting was refused");
  ONESIDED_CHECK(!stream.on_reply(input).ok(), "a stranger's data stream was believed");
}

}  // namespace
}  // namespace onesided

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  onesided::check_codec({data, size});
  onesided::check_machines({data, size});
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using namespace onesided;
  return {encode_handshake(Greeting{{}, Nonce{1}, true}),
          encode_handshake(ClientHello{Nonce{2}, hello(2), Proof{3}}),
          encode_handshake(ServerHello{{1, 2, 3}, {4}, hello(2), Proof{5}}),
          encode_handshake(Refusal{Status::kAuthFailed, "no"}),
          encode_handshake(StreamOpen{{4, 5}, Nonce{6}, "tcp", Proof{7}}),
          encode_handshake(StreamAccept{Proof{8}})};
}
