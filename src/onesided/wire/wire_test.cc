#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "onesided/wire/bytes.h"
#include "onesided/wire/control.h"
#include "onesided/wire/descriptor.h"
#include "onesided/wire/frame.h"
#include "onesided/wire/handshake.h"

namespace onesided {
namespace {

using Encoded = std::vector<std::uint8_t>;

RegionDesc some_region() {
  RegionDesc region;
  region.key = {7, 3};
  region.address = 0x7f0000000000;
  region.nbytes = 5ULL << 30;
  region.device = true;
  region.host_accessible = false;
  region.pieces = {{11, 0, 0, 1ULL << 30}, {12, 4096, 1ULL << 30, 4ULL << 30}};
  return region;
}

std::vector<ControlMessage> all_control_messages() {
  RegionUpdate update;
  update.epoch = 5;
  update.complete = true;
  update.added = {some_region(), RegionDesc{.key = {0, 1}, .address = 1, .nbytes = 1, .pieces = {}}};
  update.dropped = {{4, 9}, {5, 1}};
  update.file_ids = {11, 12};
  return {TableOffer{4096, 3, 64},
          update,
          TableRequest{8},
          TableSynced{9},
          Notify{1, std::string("na\0me", 5), "\xff\xfe"},
          NotifyAck{1, Status::kBusy},
          Bye{Status::kClosed, "good bye"},
          Heartbeat{}};
}

PeerHello some_hello() {
  PeerHello hello;
  hello.protocol_version = kProtocolVersion;
  hello.engine_id = "[fe80::1%eth0]:4000";
  hello.bound_address = "[fe80::1%2]:4000";
  hello.instance = InstanceId::random();
  hello.pid = 123;
  hello.uid = 1000;
  hello.host = HostIdentity::current();
  hello.transports = {"shm", "tcp"};
  hello.tcp_streams = 4;
  hello.heartbeat_ms = 2000;
  hello.max_notify_bytes = kMaxNotifyBytes;
  return hello;
}

std::vector<HandshakeMessage> all_handshake_messages() {
  Nonce nonce;
  fill_random(nonce);
  return {Greeting{InstanceId::random(), nonce, true},
          ClientHello{nonce, some_hello(), nonce},
          ServerHello{{1, 2, 3}, nonce, some_hello(), nonce},
          Refusal{Status::kAuthFailed, "no"},
          StreamOpen{{4, 5}, nonce, "tcp", nonce},
          StreamAccept{nonce}};
}

// Every strict prefix and every longer string must be refused. A single changed byte must give a message or an error.
template <typename Decode>
void torture(const Encoded& good, Decode decode) {
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode(std::span(good).first(size)).ok()) << "cut to " << size << " of " << good.size();
  Encoded longer = good;
  longer.push_back(0);
  EXPECT_FALSE(decode(longer).ok());
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    Encoded bad = good;
    for (int change = 0; change <= round % 4; ++change)
      bad[random() % bad.size()] = static_cast<std::uint8_t>(random() % 3 == 0 ? 0xff : random());
    [[maybe_unused]] const auto result = decode(bad);
  }
}

TEST(Bytes, VarintsHaveOneSpelling) {
  for (const std::uint64_t value : {0ULL, 1ULL, 127ULL, 128ULL, 300ULL, 1ULL << 63, ~0ULL}) {
    ByteWriter out;
    out.varint(value);
    ByteReader in(out.bytes());
    EXPECT_EQ(in.varint("v"), value);
    EXPECT_TRUE(in.finish("m").ok());
  }
  for (const Encoded& bad : {Encoded{0x80}, Encoded{0x80, 0x00}, Encoded(10, 0xff), Encoded(11, 0x80)}) {
    ByteReader in(bad);
    (void)in.varint("v");
    EXPECT_TRUE(in.failed());
  }
}

TEST(Bytes, ImpossibleCountsAreRefusedBeforeAllocation) {
  ByteWriter out;
  out.u32(0xffffffff);
  out.u64(0);
  ByteReader in(out.bytes());
  EXPECT_EQ(in.count(8, "items"), 0u);
  EXPECT_THAT(in.finish("Message").error().text(), ::testing::HasSubstr("items"));
}

TEST(Control, EveryMessageRoundTrips) {
  for (const auto& message : all_control_messages()) {
    const auto encoded = encode_control(message);
    const auto decoded = decode_control(encoded);
    ASSERT_TRUE(decoded.ok()) << control_message_name(message) << ": " << decoded.error().to_string();
    EXPECT_EQ(*decoded, message);
    torture(encoded, decode_control);
  }
  EXPECT_EQ(all_control_messages().size(), std::variant_size_v<ControlMessage>);
}

TEST(Control, FalseRegionsAreRefused) {
  const auto refused = [](auto change) {
    RegionUpdate update;
    update.added = {some_region()};
    change(update);
    return !decode_control(encode_control(update)).ok();
  };
  EXPECT_FALSE(refused([](RegionUpdate&) {}));
  EXPECT_TRUE(refused([](RegionUpdate& u) { u.added[0].nbytes = 0; }));
  EXPECT_TRUE(refused([](RegionUpdate& u) { u.added[0].address = std::numeric_limits<std::uint64_t>::max(); }));
  EXPECT_TRUE(refused([](RegionUpdate& u) { u.added[0].key.generation = 0; }));
  EXPECT_TRUE(refused([](RegionUpdate& u) { u.added[0].pieces[1].nbytes += 1; }));
  EXPECT_TRUE(refused([](RegionUpdate& u) { u.added[0].pieces[1].region_offset = ~0ULL; }));
  EXPECT_TRUE(refused([](RegionUpdate& u) { u.added[0].pieces[0].file_offset = ~0ULL; }));
  EXPECT_TRUE(refused([](RegionUpdate& u) { u.file_ids.assign(kMaxAttachedFds + 1, 1); }));
}

TEST(Handshake, EveryMessageRoundTripsAndFitsItsFrame) {
  for (const auto& message : all_handshake_messages()) {
    const auto encoded = encode_handshake(message);
    const auto decoded = decode_handshake(encoded);
    ASSERT_TRUE(decoded.ok()) << decoded.error().to_string();
    EXPECT_EQ(*decoded, message);
    EXPECT_LE(encoded.size(), kMaxHandshakePayload);
    torture(encoded, decode_handshake);
  }
  EXPECT_EQ(all_handshake_messages().size(), std::variant_size_v<HandshakeMessage>);
  EXPECT_LE(encode_handshake(Refusal{Status::kFailed, std::string(100'000, 'x')}).size(), kMaxHandshakePayload);
}

TEST(Frame, HeadersRoundTripAndLimitsHold) {
  const FrameHeader header{FrameKind::kControl, 64, kMaxControlPayload};
  EXPECT_EQ(*decode_frame_header(encode_frame_header(header)), header);
  const auto status = [](std::size_t place, std::uint8_t value) {
    auto bytes = encode_frame_header({FrameKind::kHandshake, 0, 100});
    bytes[place] = value;
    return decode_frame_header(bytes).status();
  };
  EXPECT_EQ(status(0, 'O'), Status::kSuccess);
  EXPECT_EQ(status(0, 'G'), Status::kParamInvalid);
  EXPECT_EQ(status(3, 9), Status::kParamInvalid);
  EXPECT_EQ(status(4, 1), Status::kParamInvalid) << "descriptors on a handshake";
  EXPECT_EQ(status(6, 1), Status::kParamInvalid) << "reserved";
  EXPECT_EQ(status(11, 1), Status::kParamInvalid) << "16 MiB of handshake";
  auto other = encode_frame_header({FrameKind::kHandshake, 0, 100});
  other[2] = 9;
  EXPECT_EQ(decode_frame_header(other).status(), Status::kUnsupported);
  EXPECT_THAT(decode_frame_header(other).error().text(), ::testing::HasSubstr("version 9"));
}

TEST(Descriptor, RoundTripsAndIsSmall) {
  Description description{"127.0.0.1:5000", InstanceId::random(), {}};
  for (std::uint32_t i = 0; i < 1000; ++i)
    description.items.push_back({{i, i + 1}, 4096ULL * (i + 1), 1 + i, i % 2 == 0});
  const auto blob = encode_description(description);
  EXPECT_LE(blob.size(), 40u * 1000);
  const auto decoded = decode_description(blob);
  ASSERT_TRUE(decoded.ok()) << decoded.error().to_string();
  EXPECT_EQ(*decoded, description);
  description.items.resize(2);
  torture(encode_description(description), decode_description);
  EXPECT_FALSE(decode_description({}).ok());
}

}  // namespace
}  // namespace onesided
