#include "onesided/wire/handshake.h"

#include <fmt/core.h>

#include "onesided/wire/bytes.h"

namespace onesided {
namespace {

constexpr std::size_t kMaxRefusalText = 2048;
constexpr const char* kNames[] = {"Greeting", "ClientHello", "ServerHello", "Refusal", "StreamOpen", "StreamAccept"};
static_assert(std::size(kNames) == std::variant_size_v<HandshakeMessage>);

struct Writer {
  ByteWriter out;

  void hello(const PeerHello& hello) {
    out.u16(hello.protocol_version);
    out.string(hello.engine_id);
    out.string(hello.bound_address);
    out.raw(hello.instance.bytes);
    out.u32(hello.pid);
    out.u32(hello.uid);
    out.raw(hello.host.boot_id);
    out.u64(hello.host.net_namespace);
    out.u64(hello.host.pid_namespace);
    out.u32(static_cast<std::uint32_t>(hello.transports.size()));
    for (const auto& name : hello.transports) out.string(name);
    out.u32(hello.tcp_streams);
    out.u32(hello.heartbeat_ms);
    out.u64(hello.max_notify_bytes);
  }

  void operator()(const Greeting& m) {
    out.raw(m.instance.bytes);
    out.raw(m.nonce);
    out.u8(m.has_secret);
  }
  void operator()(const ClientHello& m) {
    out.raw(m.nonce);
    hello(m.hello);
    out.raw(m.proof);
  }
  void operator()(const ServerHello& m) {
    out.raw(m.token);
    out.raw(m.key);
    hello(m.hello);
    out.raw(m.proof);
  }
  void operator()(const Refusal& m) {
    out.u32(static_cast<std::uint32_t>(m.status));
    out.string(std::string_view(m.text).substr(0, kMaxRefusalText));
  }
  void operator()(const StreamOpen& m) {
    out.raw(m.token);
    out.raw(m.nonce);
    out.string(m.transport);
    out.raw(m.proof);
  }
  void operator()(const StreamAccept& m) { out.raw(m.proof); }
};

struct Reader {
  ByteReader in;

  PeerHello hello() {
    PeerHello hello;
    hello.protocol_version = in.u16("protocol_version");
    hello.engine_id = in.string(kMaxEngineIdBytes, "engine_id");
    hello.bound_address = in.string(kMaxEngineIdBytes, "bound_address");
    hello.instance.bytes = in.array<16>("instance");
    hello.pid = in.u32("pid");
    hello.uid = in.u32("uid");
    hello.host.boot_id = in.array<16>("boot_id");
    hello.host.net_namespace = in.u64("net_namespace");
    hello.host.pid_namespace = in.u64("pid_namespace");
    const auto count = in.count(4, "transports");
    if (count > kMaxTransportNames) in.fail("transports");
    for (std::size_t i = 0; i < count && !in.failed(); ++i)
      hello.transports.push_back(in.string(kMaxTransportNameBytes, "transports"));
    hello.tcp_streams = in.u32("tcp_streams");
    hello.heartbeat_ms = in.u32("heartbeat_ms");
    hello.max_notify_bytes = in.u64("max_notify_bytes");
    return hello;
  }

  void operator()(Greeting& m) {
    m.instance.bytes = in.array<16>("instance");
    m.nonce = in.array<32>("nonce");
    m.has_secret = in.boolean("has_secret");
  }
  void operator()(ClientHello& m) {
    m.nonce = in.array<32>("nonce");
    m.hello = hello();
    m.proof = in.array<32>("proof");
  }
  void operator()(ServerHello& m) {
    m.token = in.array<16>("token");
    m.key = in.array<32>("key");
    m.hello = hello();
    m.proof = in.array<32>("proof");
  }
  void operator()(Refusal& m) {
    m.status = static_cast<Status>(in.u32("status"));
    if (status_name(m.status) == "UNKNOWN" || m.status == Status::kSuccess) in.fail("status");
    m.text = in.string(kMaxRefusalText, "text");
  }
  void operator()(StreamOpen& m) {
    m.token = in.array<16>("token");
    m.nonce = in.array<32>("nonce");
    m.transport = in.string(kMaxTransportNameBytes, "transport");
    m.proof = in.array<32>("proof");
  }
  void operator()(StreamAccept& m) { m.proof = in.array<32>("proof"); }
};

template <std::size_t I = 0>
std::optional<HandshakeMessage> message_of_type(std::size_t index) {
  if constexpr (I < std::variant_size_v<HandshakeMessage>) {
    if (index == I) return HandshakeMessage(std::in_place_index<I>);
    return message_of_type<I + 1>(index);
  } else {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::uint8_t> encode_handshake(const HandshakeMessage& message) {
  Writer writer;
  writer.out.u8(static_cast<std::uint8_t>(message.index() + 1));
  std::visit(writer, message);
  return writer.out.take();
}

Result<HandshakeMessage> decode_handshake(std::span<const std::uint8_t> payload) {
  Reader reader{ByteReader(payload)};
  const std::size_t type = reader.in.u8("type");
  auto message = message_of_type(type - 1);
  if (!message) return Error(Status::kParamInvalid, fmt::format("handshake: unknown message type {}", type));
  std::visit(reader, *message);
  ONESIDED_TRY(reader.in.finish(kNames[message->index()]));
  return std::move(*message);
}

std::span<const std::uint8_t> proven_part(std::span<const std::uint8_t> encoded) {
  return encoded.first(encoded.size() - std::min(encoded.size(), sizeof(Proof)));
}

}  // namespace onesided
