#include "onesided/engine/handshake.h"

#include <fmt/core.h>

#include <algorithm>

namespace onesided {
namespace {

std::vector<std::uint8_t> copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

// The proof is the last field of the messages that carry one.
void put_proof(std::vector<std::uint8_t>& encoded, const Proof& proof) {
  std::copy(proof.begin(), proof.end(), encoded.end() - static_cast<std::ptrdiff_t>(proof.size()));
}

Result<void> check_version(const PeerHello& ours, const PeerHello& theirs) {
  if (ours.protocol_version == theirs.protocol_version) return {};
  return Error(
      Status::kUnsupported,
      fmt::format("engine {} has protocol version {}, engine {} has version {}; use the same release on both sides",
                  ours.engine_id, ours.protocol_version, theirs.engine_id, theirs.protocol_version));
}

// Over a Unix socket the kernel's data about the process replace the peer's own.
void trust_kernel(PeerHello& peer, const UnixPeer& unix_peer) {
  peer.pid = unix_peer.pid;
  peer.uid = unix_peer.uid;
}

Error unexpected(std::string_view got) {
  return Error(Status::kUnsupported, fmt::format("the program that answers there does not use this protocol: {}", got));
}

template <typename T>
Result<T> expect(Bytes payload) {
  auto message = decode_handshake(payload);
  if (!message) return unexpected(message.error().text());
  if (const auto* refused = std::get_if<Refusal>(&*message)) return Error(refused->status, refused->text);
  if (auto* wanted = std::get_if<T>(&*message)) return std::move(*wanted);
  return unexpected("a message out of order");
}

}  // namespace

ListenerHandshake::ListenerHandshake(HandshakeSelf self) : self_(std::move(self)) {
  Greeting greeting;
  greeting.instance = self_.hello.instance;
  fill_random(greeting.nonce);
  greeting.has_secret = !self_.secret.empty();
  greeting_ = encode_handshake(greeting);
}

Result<ListenerHandshake::Outcome> ListenerHandshake::on_message(Bytes payload,
                                                                 const FindStreamKey& find_stream_key) const {
  ONESIDED_TRY_ASSIGN(message, decode_handshake(payload));
  if (const auto* hello = std::get_if<ClientHello>(&message)) {
    ONESIDED_TRY_ASSIGN(session, open_session(*hello, payload));
    return Outcome(std::move(session));
  }
  if (const auto* open = std::get_if<StreamOpen>(&message)) {
    ONESIDED_TRY_ASSIGN(stream, open_stream(*open, payload, find_stream_key));
    return Outcome(std::move(stream));
  }
  return Error(Status::kParamInvalid, "handshake: a listener takes only ClientHello and StreamOpen");
}

Result<ListenerHandshake::Session> ListenerHandshake::open_session(const ClientHello& message, Bytes payload) const {
  const auto& ours = self_.hello;
  if (!self_.unix_peer) {
    if (self_.secret.empty()) {
      return Error(Status::kAuthFailed,
                   "this engine has no shared secret and accepts only peers of its own host and user; give both "
                   "engines the same auth_secret_file");
    }
    // Checked first, so that all later answers go to a peer that has proved the secret.
    if (!equal_secret(message.proof, client_proof(self_.secret, greeting_, payload)))
      return Error(Status::kAuthFailed, "the shared secrets differ; compare auth_secret_file on both sides");
  }
  ONESIDED_TRY(check_version(ours, message.hello));
  if (message.hello.instance == ours.instance)
    return Error(Status::kParamInvalid, fmt::format("this is the same engine; its own id is {}", ours.engine_id));

  Session session;
  session.opened.peer = message.hello;
  if (self_.unix_peer) trust_kernel(session.opened.peer, *self_.unix_peer);
  ServerHello reply;
  fill_random(reply.token);
  if (self_.unix_peer) fill_random(reply.key);
  reply.hello = ours;
  session.opened.token = reply.token;
  session.reply = encode_handshake(reply);
  if (self_.unix_peer) {
    session.opened.keys = SessionKeys::derive(reply.key);
  } else {
    put_proof(session.reply, server_proof(self_.secret, greeting_, payload, session.reply));
    session.opened.keys = SessionKeys::derive(session_master(self_.secret, greeting_, payload, session.reply));
  }
  return session;
}

Result<ListenerHandshake::Stream> ListenerHandshake::open_stream(const StreamOpen& message, Bytes payload,
                                                                 const FindStreamKey& find_stream_key) const {
  const auto key = find_stream_key(message.token);
  // Both cases give the same answer, so that an attacker cannot find out which tokens exist.
  if (!key || !equal_secret(message.proof, stream_open_proof(*key, greeting_, payload)))
    return Error(Status::kAuthFailed, "the data stream does not belong to a session that is open here");
  Stream stream;
  stream.token = message.token;
  stream.transport = message.transport;
  stream.reply = encode_handshake(StreamAccept{stream_accept_proof(*key, greeting_, payload)});
  return stream;
}

DialerHandshake::DialerHandshake(HandshakeSelf self, std::string remote_id, std::string dialed)
    : self_(std::move(self)), remote_id_(std::move(remote_id)), dialed_(std::move(dialed)) {}

Result<std::vector<std::uint8_t>> DialerHandshake::on_greeting(Bytes payload) {
  ONESIDED_TRY_ASSIGN(greeting, expect<Greeting>(payload));
  greeting_ = copy(payload);
  instance_ = greeting.instance;
  if (!self_.unix_peer && (self_.secret.empty() || !greeting.has_secret)) {
    return Error(
        Status::kAuthFailed,
        fmt::format("{} is on another host, or belongs to another user, and {} has no shared secret; give both "
                    "engines the same auth_secret_file",
                    remote_id_, self_.secret.empty() ? "this engine" : "it"));
  }
  ClientHello hello;
  fill_random(hello.nonce);
  hello.hello = self_.hello;
  client_hello_ = encode_handshake(hello);
  if (!self_.unix_peer) put_proof(client_hello_, client_proof(self_.secret, greeting_, client_hello_));
  return client_hello_;
}

Result<OpenedSession> DialerHandshake::on_reply(Bytes payload) {
  ONESIDED_TRY_ASSIGN(reply, expect<ServerHello>(payload));
  if (!self_.unix_peer && !equal_secret(reply.proof, server_proof(self_.secret, greeting_, client_hello_, payload))) {
    return Error(Status::kAuthFailed,
                 fmt::format("{} could not prove the shared secret; another program may listen there", remote_id_));
  }
  ONESIDED_TRY(check_version(self_.hello, reply.hello));
  if (reply.hello.instance != instance_)
    return Error(Status::kAuthFailed, fmt::format("{} greeted as another engine than it proved to be", remote_id_));
  if (reply.hello.engine_id != remote_id_ && reply.hello.bound_address != dialed_) {
    return Error(Status::kNotConnected,
                 fmt::format("dialed {} (address {}), but the engine there is {} (address {})", remote_id_, dialed_,
                             reply.hello.engine_id, reply.hello.bound_address));
  }
  OpenedSession opened;
  opened.peer = reply.hello;
  opened.token = reply.token;
  if (self_.unix_peer) {
    trust_kernel(opened.peer, *self_.unix_peer);
    opened.keys = SessionKeys::derive(reply.key);
  } else {
    opened.keys = SessionKeys::derive(session_master(self_.secret, greeting_, client_hello_, payload));
  }
  return opened;
}

StreamHandshake::StreamHandshake(const SessionToken& token, const Key& streams, std::string transport)
    : token_(token), streams_(streams), transport_(std::move(transport)) {}

Result<std::vector<std::uint8_t>> StreamHandshake::on_greeting(Bytes payload) {
  ONESIDED_TRY_ASSIGN(greeting, expect<Greeting>(payload));
  (void)greeting;
  greeting_ = copy(payload);
  StreamOpen open;
  open.token = token_;
  fill_random(open.nonce);
  open.transport = transport_;
  stream_open_ = encode_handshake(open);
  put_proof(stream_open_, stream_open_proof(streams_, greeting_, stream_open_));
  return stream_open_;
}

Result<void> StreamHandshake::on_reply(Bytes payload) const {
  ONESIDED_TRY_ASSIGN(reply, expect<StreamAccept>(payload));
  if (equal_secret(reply.proof, stream_accept_proof(streams_, greeting_, stream_open_))) return {};
  return Error(Status::kAuthFailed, "the listener could not prove that it belongs to the session of this data stream");
}

std::vector<std::uint8_t> refusal(const Error& why) { return encode_handshake(Refusal{why.status(), why.text()}); }

}  // namespace onesided
