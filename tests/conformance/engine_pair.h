// Every rule of the engine is one test, run over every transport; this is the ten lines a transport needs, and
// memory that notices when a byte lands beside it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "onesided/device/host/factory.h"
#include "onesided/node/open_engine.h"

namespace onesided::testing {

// Names the tests of a suite that is run over several transports.
inline std::string transport_name(const ::testing::TestParamInfo<std::string>& suite) { return suite.param; }

inline constexpr std::int64_t kTestMs =
    20'000;  // far more than anything takes; a hang fails instead of blocking the suite

// Memory with 4 KiB of 0xA5 on both sides. The shared kind can be mapped by others.
class GuardedMemory {
 public:
  GuardedMemory(std::uint64_t nbytes, bool shared)
      : device_(shared ? shared_host_device() : anonymous_host_device()), nbytes_(nbytes), whole_(nbytes + 2 * kGuard) {
    auto made = device_.allocate(whole_, 4096);
    ONESIDED_CHECK(made.ok(), "{}", made.error().to_string());
    base_ = static_cast<std::uint8_t*>(*made);
    std::memset(base_, 0xA5, whole_);
    std::memset(data(), 0, nbytes_);
  }
  ~GuardedMemory() {
    EXPECT_TRUE(intact()) << "bytes beside the buffer were touched";
    (void)device_.free(base_, whole_);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::uint8_t* data() const { return base_ + kGuard; }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data()); }
  std::uint64_t size() const { return nbytes_; }
  std::vector<std::uint8_t> copy() const { return {data(), data() + nbytes_}; }
  bool filled_with(std::uint8_t value) const {
    return nbytes_ == 0 || (data()[0] == value && std::memcmp(data(), data() + 1, nbytes_ - 1) == 0);
  }
  // Bytes that differ from place to place and from seed to seed.
  void fill_pattern(std::uint64_t seed) {
    std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
    for (std::uint64_t i = 0; i < nbytes_; ++i) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      data()[i] = static_cast<std::uint8_t>(state);
    }
  }

 private:
  static constexpr std::uint64_t kGuard = 4096;
  bool intact() const {
    for (std::uint64_t i = 0; i < kGuard; ++i)
      if (base_[i] != 0xA5 || base_[whole_ - 1 - i] != 0xA5) return false;
    return true;
  }
  Device& device_;
  const std::uint64_t nbytes_, whole_;
  std::uint8_t* base_;
};

#define ASSERT_OK(expression)                                       \
  do {                                                              \
    const auto& ok_result_ = (expression);                          \
    ASSERT_TRUE(ok_result_.ok()) << ok_result_.error().to_string(); \
  } while (false)
#define EXPECT_OK(expression)                                       \
  do {                                                              \
    const auto& ok_result_ = (expression);                          \
    EXPECT_TRUE(ok_result_.ok()) << ok_result_.error().to_string(); \
  } while (false)
#define EXPECT_STATUS(expected, expression)                                                  \
  do {                                                                                       \
    const auto& status_result_ = (expression);                                               \
    EXPECT_EQ(status_name(expected), status_name(status_result_.status()))                   \
        << (status_result_.ok() ? std::string("succeeded") : status_result_.error().text()); \
  } while (false)

inline std::unique_ptr<Engine> open(const std::string& transports, std::map<std::string, std::string> options = {},
                                    const std::string& local_engine = "127.0.0.1:0") {
  if (!transports.empty() && transports != "self") options["transports"] = transports;
  if (transports == "ascend") ::setenv("ONESIDED_HIXL_LIBRARY", ONESIDED_TEST_HIXL, 1);
  auto engine = open_engine(local_engine, options);
  ONESIDED_CHECK(engine.ok(), "{}", engine.error().to_string());
  return std::move(engine).value();
}

// A reader connected to an owner over the transport that the test is run for. Over "self" they are one engine.
class EnginePair : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    owner_ = open(GetParam());
    if (GetParam() == "self") return;
    reader_ = open(GetParam());
    ASSERT_OK(reader_->connect(owner_->id(), kTestMs));
  }
  Engine& owner() { return *owner_; }
  Engine& reader() { return reader_ ? *reader_ : *owner_; }
  const std::string& peer() { return owner_->id(); }
  // Memory that this transport can reach.
  std::unique_ptr<GuardedMemory> memory(std::uint64_t nbytes) {
    return std::make_unique<GuardedMemory>(nbytes, GetParam() == "shm");
  }
  static MemHandle add(Engine& engine, const GuardedMemory& memory) {
    auto handle = engine.register_mem(memory.address(), memory.size(), MemType::kHost);
    ONESIDED_CHECK(handle.ok(), "{}", handle.error().to_string());
    return *handle;
  }
  Result<void> move(Op op, const std::vector<TransferItem>& items, Engine::TimeoutMs timeout_ms = kTestMs) {
    return reader().transfer_sync(peer(), op, TransferList{items}, timeout_ms);
  }
  std::shared_ptr<Transfer> begin(Op op, const std::vector<TransferItem>& items,
                                  Engine::TimeoutMs timeout_ms = kTestMs) {
    auto begun = reader().transfer_async(peer(), op, TransferList{items}, timeout_ms);
    ONESIDED_CHECK(begun.ok(), "{}", begun.error().to_string());
    return *begun;
  }

  std::unique_ptr<Engine> owner_, reader_;
};

}  // namespace onesided::testing
