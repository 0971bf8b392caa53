// The rules of vendor_engine.h as a program written for the vendor's libraries meets them: through the exported classes
// only. What both classes promise is tested on both.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "vendor_abi.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint32_t kSuccess = 0, kParamInvalid = 103900, kNotConnected = 103902, kAlreadyConnected = 103903,
                        kUnsupported = 103905, kExhausted = 203900, kFailed = 503900;
constexpr std::int32_t kMs = 20'000;
constexpr std::size_t kPage = 2U << 20;

using Options = std::map<ge::AscendString, ge::AscendString>;
const Options kNoStaging = {{"BufferPool", "0:0"}};
const Options kAuto = {{"BufferPool", "0:0"}, {"AutoConnect", "1"}};

// The names that belong to each class.
struct Adxl {
  using Engine = adxl::AdxlEngine;
  using Memory = adxl::MemDesc;
  using Item = adxl::TransferOpDesc;
  using Args = adxl::TransferArgs;
  using State = adxl::TransferStatus;
  using Type = adxl::MemType;
  using Op = adxl::TransferOp;
};
struct Hixl {
  using Engine = hixl::Hixl;
  using Memory = hixl::MemDesc;
  using Item = hixl::TransferOpDesc;
  using Args = hixl::TransferArgs;
  using State = hixl::TransferStatus;
  using Type = hixl::MemType;
  using Op = hixl::TransferOp;
};

template <typename Names>
class VendorProgram : public testing::Test {
 protected:
  using Engine = typename Names::Engine;
  using Item = typename Names::Item;
  static constexpr auto kHost = static_cast<typename Names::Type>(1);
  static constexpr auto kDevice = static_cast<typename Names::Type>(0);
  static constexpr auto kRead = static_cast<typename Names::Op>(0);
  static constexpr auto kWrite = static_cast<typename Names::Op>(1);

  // Listens on an unused port, because the API cannot choose one.
  static std::string start(Engine& engine, const Options& options) {
    static std::atomic<int> next{21'000 + (::getpid() * 37) % 20'000};
    for (int attempt = 0; attempt < 200; ++attempt) {
      const std::string name = "127.0.0.1:" + std::to_string(next++);
      if (engine.Initialize(name.c_str(), options) == kSuccess) return name;
    }
    ADD_FAILURE() << "no port";
    return {};
  }
  static std::uint32_t add(Engine& engine, const void* at, std::size_t nbytes, typename Names::Type type,
                           void** handle = nullptr) {
    typename Names::Memory memory{};
    memory.addr = reinterpret_cast<std::uintptr_t>(at);
    memory.len = nbytes;
    void* made = nullptr;
    const auto code = engine.RegisterMem(memory, type, made);
    if (handle) *handle = made;
    return code;
  }
  static Item item(const void* local, const void* remote, std::size_t nbytes) {
    return {reinterpret_cast<std::uintptr_t>(local), reinterpret_cast<std::uintptr_t>(remote), nbytes};
  }
};

using Both = testing::Types<Adxl, Hixl>;
TYPED_TEST_SUITE(VendorProgram, Both);

std::vector<std::uint8_t> pattern(std::size_t nbytes, std::uint8_t first = 1) {
  std::vector<std::uint8_t> out(nbytes);
  std::iota(out.begin(), out.end(), first);
  return out;
}

// In place: the memory is registered.
void fill(std::vector<std::uint8_t>& bytes, std::uint8_t first) { std::iota(bytes.begin(), bytes.end(), first); }

TYPED_TEST(VendorProgram, LifeAndWrongOrder) {
  typename TypeParam::Engine engine;
  void* handle = nullptr;
  typename TypeParam::State state{};
  std::uint8_t byte = 0;
  EXPECT_EQ(this->add(engine, &byte, 1, this->kHost), kFailed);
  EXPECT_EQ(engine.Connect("127.0.0.1:1", kMs), kFailed);
  EXPECT_EQ(engine.GetTransferStatus(handle, state), kFailed);
  engine.Finalize();
  EXPECT_EQ(engine.Initialize("127.0.0.1", {{"NoSuchOption", "1"}}), kParamInvalid);
  EXPECT_EQ(engine.Initialize("127.0.0.1:http", {}), kParamInvalid);
  for (const char* name : {"127.0.0.1", "127.0.0.1:0", "127.0.0.1:-1", "[::1]", "[::1]:0"}) {
    EXPECT_EQ(engine.Initialize(name, {}), kSuccess) << name;
    EXPECT_EQ(engine.Initialize(name, {}), kParamInvalid) << "twice";
    engine.Finalize();
    engine.Finalize();
  }
  const std::string taken = this->start(engine, {});
  typename TypeParam::Engine second;
  EXPECT_EQ(second.Initialize(taken.c_str(), {}), kFailed) << "the port is taken";
}

TYPED_TEST(VendorProgram, Registration) {
  typename TypeParam::Engine engine;
  ASSERT_EQ(engine.Initialize("127.0.0.1", {}), kSuccess);
  std::vector<std::uint8_t> bytes(4096);
  void *a = nullptr, *b = nullptr, *c = nullptr;
  EXPECT_EQ(this->add(engine, bytes.data(), 1024, this->kHost, &a), kSuccess);
  EXPECT_EQ(this->add(engine, bytes.data(), 1024, this->kHost, &b), kSuccess);
  EXPECT_EQ(a, b);
  EXPECT_EQ(this->add(engine, bytes.data() + 1024, 1024, this->kHost, &c), kSuccess) << "a neighbour";
  EXPECT_NE(a, c);
  EXPECT_EQ(this->add(engine, bytes.data() + 512, 1024, this->kHost), kParamInvalid);
  EXPECT_EQ(this->add(engine, nullptr, 16, this->kHost), kParamInvalid);
  EXPECT_EQ(this->add(engine, bytes.data(), 0, this->kHost), kParamInvalid);
  EXPECT_EQ(this->add(engine, bytes.data(), ~std::size_t{0}, this->kHost), kParamInvalid);
  EXPECT_EQ(this->add(engine, bytes.data() + 3000, 16, static_cast<typename TypeParam::Type>(7)), kParamInvalid);
  EXPECT_EQ(engine.DeregisterMem(reinterpret_cast<void*>(0x1234)), kSuccess) << "unknown";
  for (void* handle : {a, b, c, a}) EXPECT_EQ(engine.DeregisterMem(handle), kSuccess);
}

TYPED_TEST(VendorProgram, ConnectAndTransfer) {
  typename TypeParam::Engine owner, client;
  const std::string remote = this->start(owner, kNoStaging);
  this->start(client, kNoStaging);
  auto theirs = pattern(1 << 20);
  std::vector<std::uint8_t> ours(1 << 20);
  const std::size_t half = ours.size() / 2;
  // Neighbouring registrations with different borders on the two sides.
  ASSERT_EQ(this->add(owner, theirs.data(), 1000, this->kHost), kSuccess);
  ASSERT_EQ(this->add(owner, theirs.data() + 1000, theirs.size() - 1000, this->kHost), kSuccess);
  ASSERT_EQ(this->add(client, ours.data(), half, this->kHost), kSuccess);
  ASSERT_EQ(this->add(client, ours.data() + half, half, this->kHost), kSuccess);

  const std::vector<typename TypeParam::Item> all = {this->item(ours.data(), theirs.data(), ours.size())};
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, all, kMs), kNotConnected);
  EXPECT_EQ(client.Disconnect(remote.c_str(), kMs), kNotConnected);
  EXPECT_EQ(client.Connect(remote.c_str(), 0), kParamInvalid);
  ASSERT_EQ(client.Connect(remote.c_str(), kMs), kSuccess);
  EXPECT_EQ(client.Connect(remote.c_str(), kMs), kAlreadyConnected);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, all, kMs), kSuccess);
  EXPECT_EQ(ours, theirs);
  fill(ours, 99);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kWrite, all, kMs), kSuccess);
  EXPECT_EQ(ours, theirs);

  const auto moves = [&](const void* local, const void* at, std::size_t nbytes) {
    return client.TransferSync(remote.c_str(), this->kRead, {this->item(local, at, nbytes)}, kMs);
  };
  EXPECT_EQ(moves(nullptr, theirs.data(), 1), kParamInvalid);
  EXPECT_EQ(moves(ours.data(), nullptr, 1), kParamInvalid);
  EXPECT_EQ(moves(ours.data(), theirs.data(), 0), kParamInvalid);
  EXPECT_EQ(moves(ours.data(), theirs.data() + 1, ours.size()), kParamInvalid) << "one byte past the remote's end";
  EXPECT_EQ(moves(ours.data() + 1, theirs.data(), ours.size()), kParamInvalid) << "one byte past our own";
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, {}, kMs), kParamInvalid);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, all, 0), kParamInvalid);
  EXPECT_EQ(client.TransferSync(remote.c_str(), static_cast<typename TypeParam::Op>(2), all, kMs), kParamInvalid);
  EXPECT_EQ(client.Disconnect(remote.c_str(), kMs), kSuccess);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, all, kMs), kNotConnected);
  EXPECT_EQ(client.Connect(remote.c_str(), kMs), kSuccess) << "again";
}

TYPED_TEST(VendorProgram, AnEngineIsItsOwnPeer) {
  typename TypeParam::Engine engine;
  const std::string self = this->start(engine, kNoStaging);
  auto bytes = pattern(8192);
  ASSERT_EQ(this->add(engine, bytes.data(), bytes.size(), this->kHost), kSuccess);
  ASSERT_EQ(engine.Connect(self.c_str(), kMs), kSuccess);
  EXPECT_EQ(engine.Connect(self.c_str(), kMs), kAlreadyConnected);
  const auto expected = std::vector<std::uint8_t>(bytes.begin(), bytes.begin() + 4096);
  EXPECT_EQ(engine.TransferSync(self.c_str(), this->kRead, {this->item(bytes.data() + 4096, bytes.data(), 4096)}, kMs),
            kSuccess);
  EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin() + 4096, bytes.end()), expected);
}

TYPED_TEST(VendorProgram, AsynchronousTransfersTellTheirEndOnce) {
  typename TypeParam::Engine owner, client;
  const std::string remote = this->start(owner, kNoStaging);
  this->start(client, kNoStaging);
  auto theirs = pattern(4 << 20);
  std::vector<std::uint8_t> ours(theirs.size());
  ASSERT_EQ(this->add(owner, theirs.data(), theirs.size(), this->kHost), kSuccess);
  ASSERT_EQ(this->add(client, ours.data(), ours.size(), this->kHost), kSuccess);
  ASSERT_EQ(client.Connect(remote.c_str(), kMs), kSuccess);
  void* request = nullptr;
  ASSERT_EQ(client.TransferAsync(remote.c_str(), this->kRead, {this->item(ours.data(), theirs.data(), ours.size())}, {},
                                 request),
            kSuccess);
  using State = typename TypeParam::State;
  State state = State::WAITING;
  while (state == State::WAITING) {
    ASSERT_EQ(client.GetTransferStatus(request, state), kSuccess);
    std::this_thread::yield();
  }
  EXPECT_EQ(state, State::COMPLETED);
  EXPECT_EQ(ours, theirs);
  EXPECT_EQ(client.GetTransferStatus(request, state), kParamInvalid) << "asked after the end";
  EXPECT_EQ(state, State::FAILED);
  for (const std::uintptr_t made_up : {std::uintptr_t{0}, std::uintptr_t{12345}, ~std::uintptr_t{0}}) {
    void* const handle = reinterpret_cast<void*>(made_up);
    EXPECT_EQ(client.GetTransferStatus(handle, state), kParamInvalid);
  }
}

TYPED_TEST(VendorProgram, NobodyListensAndAPeerThatGoes) {
  typename TypeParam::Engine client;
  this->start(client, kNoStaging);
  EXPECT_EQ(client.Connect("127.0.0.1:1", kMs), kFailed);
  EXPECT_EQ(client.Connect("nonsense", kMs), kParamInvalid);
  std::vector<std::uint8_t> ours(16), theirs(16);
  ASSERT_EQ(this->add(client, ours.data(), 16, this->kHost), kSuccess);
  std::string remote;
  {
    typename TypeParam::Engine owner;
    remote = this->start(owner, kNoStaging);
    ASSERT_EQ(this->add(owner, theirs.data(), 16, this->kHost), kSuccess);
    ASSERT_EQ(client.Connect(remote.c_str(), kMs), kSuccess);
  }
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, {this->item(ours.data(), theirs.data(), 16)}, kMs),
            kFailed);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, {this->item(ours.data(), theirs.data(), 16)}, kMs),
            kNotConnected);
  typename TypeParam::Engine next;
  ASSERT_EQ(next.Initialize(remote.c_str(), kNoStaging), kSuccess);
  EXPECT_EQ(client.Connect(remote.c_str(), kMs), kSuccess) << "to the one that came back";
}

TYPED_TEST(VendorProgram, MemoryRegisteredAfterConnectNeedsAnother) {
  for (const bool automatic : {false, true}) {
    typename TypeParam::Engine owner, client;
    const std::string remote = this->start(owner, kNoStaging);
    this->start(client, automatic ? kAuto : kNoStaging);
    std::vector<std::uint8_t> ours(64), early(64), late = pattern(64);
    ASSERT_EQ(this->add(owner, early.data(), 64, this->kHost), kSuccess);
    ASSERT_EQ(this->add(client, ours.data(), 64, this->kHost), kSuccess);
    if (!automatic) {
      ASSERT_EQ(client.Connect(remote.c_str(), kMs), kSuccess);
    }
    const auto read = [&](const std::vector<std::uint8_t>& from) {
      return client.TransferSync(remote.c_str(), this->kRead, {this->item(ours.data(), from.data(), 64)}, kMs);
    };
    EXPECT_EQ(read(early), kSuccess);
    ASSERT_EQ(this->add(owner, late.data(), 64, this->kHost), kSuccess);
    if (!automatic) {
      EXPECT_EQ(read(late), kParamInvalid);
      ASSERT_EQ(client.Disconnect(remote.c_str(), kMs), kSuccess);
      ASSERT_EQ(client.Connect(remote.c_str(), kMs), kSuccess);
    }
    EXPECT_EQ(read(late), kSuccess);
    EXPECT_EQ(ours, late);
  }
}

TYPED_TEST(VendorProgram, ABufferPoolStagesWhatIsNotRegistered) {
  typename TypeParam::Engine owner, client;
  const Options pool = {{"BufferPool", "2:1"}};  // smaller than what is moved
  const std::string remote = this->start(owner, pool);
  this->start(client, pool);
  auto theirs = pattern((5 << 20) + 123);
  std::vector<std::uint8_t> ours(theirs.size());
  ASSERT_EQ(client.Connect(remote.c_str(), kMs), kSuccess);
  const std::vector<typename TypeParam::Item> items = {
      this->item(ours.data(), theirs.data(), 7),
      this->item(ours.data() + 7, theirs.data() + 7, ours.size() - 7),
  };
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, items, kMs), kSuccess);
  EXPECT_EQ(ours, theirs);
  fill(ours, 77);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kWrite, items, kMs), kSuccess);
  EXPECT_EQ(ours, theirs);

  void* request = nullptr;
  EXPECT_EQ(client.TransferAsync(remote.c_str(), this->kRead, items, {}, request), kUnsupported);
  auto* const nowhere = reinterpret_cast<void*>(0x10);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, {this->item(ours.data(), nowhere, 16)}, kMs), kFailed);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, {this->item(nowhere, theirs.data(), 16)}, kMs), kFailed);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, items, kMs), kSuccess) << "after the failures";
}

TYPED_TEST(VendorProgram, TwoEnginesMayStageTowardsEachOtherAtOnce) {
  const Options pool = {{"BufferPool", "1:1"}, {"AutoConnect", "1"}};
  std::array<typename TypeParam::Engine, 2> engines;
  std::array<std::string, 2> names;
  for (std::size_t i = 0; i < 2; ++i) names[i] = this->start(engines[i], pool);
  std::array<std::vector<std::uint8_t>, 2> from = {pattern(3 << 20, 1), pattern(3 << 20, 2)};
  std::array<std::vector<std::uint8_t>, 2> to = {std::vector<std::uint8_t>(3 << 20),
                                                 std::vector<std::uint8_t>(3 << 20)};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round)
        EXPECT_EQ(engines[i].TransferSync(names[1 - i].c_str(), this->kRead,
                                          {this->item(to[i].data(), from[1 - i].data(), 3 << 20)}, kMs),
                  kSuccess);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(to[0], from[1]);
  EXPECT_EQ(to[1], from[0]);
}

// Device memory of the simulated runtime that lies beside the engine's libraries.
class Npu {
 public:
  Npu() {
    void* runtime = dlopen(SIM_RUNTIME, RTLD_NOW | RTLD_GLOBAL);
    EXPECT_NE(runtime, nullptr) << dlerror();
    const auto set_device = reinterpret_cast<int (*)(int)>(dlsym(runtime, "aclrtSetDevice"));
    malloc_ = reinterpret_cast<int (*)(void**, std::size_t, int)>(dlsym(runtime, "aclrtMalloc"));
    words_ = reinterpret_cast<const char* (*)()>(dlsym(runtime, "aclGetRecentErrMsg"));
    EXPECT_EQ(set_device(0), 0);
  }
  std::uint8_t* allocate(std::size_t nbytes) {
    void* at = nullptr;
    EXPECT_EQ(malloc_(&at, nbytes, 1), 0);
    return static_cast<std::uint8_t*>(at);
  }
  std::string words() {
    const char* words = words_();
    return words ? words : "";
  }

 private:
  int (*malloc_)(void**, std::size_t, int) = nullptr;
  const char* (*words_)() = nullptr;
};

TYPED_TEST(VendorProgram, MisalignedDeviceMemoryIsRefusedAtConnectInTheDriversWords) {
  Npu npu;
  std::uint8_t* memory = npu.allocate(3 * kPage);
  typename TypeParam::Engine owner, client;
  const std::string remote = this->start(owner, kNoStaging);
  this->start(client, kNoStaging);
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kPage, 0U);
  for (const auto& [start, nbytes] : {std::pair<std::size_t, std::size_t>{512, kPage}, {kPage, kPage - 512}}) {
    for (typename TypeParam::Engine* side : {&client, &owner}) {
      void* handle = nullptr;
      EXPECT_EQ(this->add(*side, memory + start, nbytes, this->kDevice, &handle), kSuccess)
          << "the driver does not check yet";
      (void)npu.words();
      EXPECT_EQ(client.Connect(remote.c_str(), kMs), kFailed);
      if (side == &client) {
        EXPECT_THAT(npu.words(), AllOf(HasSubstr("Invalid para. va="), HasSubstr("page_size=2097152")));
      }
      EXPECT_EQ(side->DeregisterMem(handle), kSuccess);
    }
  }
  std::uint8_t* other = npu.allocate(2 * kPage);
  ASSERT_EQ(this->add(owner, memory, 2 * kPage, this->kDevice), kSuccess);
  ASSERT_EQ(this->add(client, other, 2 * kPage, this->kDevice), kSuccess);
  ASSERT_EQ(client.Connect(remote.c_str(), kMs), kSuccess);
  std::memset(memory, 0x3C, 2 * kPage);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, {this->item(other + 1, memory, 2 * kPage - 1)}, kMs),
            kSuccess);
  EXPECT_EQ(other[0], 0);
  EXPECT_EQ(std::count(other + 1, other + 2 * kPage, 0x3C), static_cast<std::ptrdiff_t>(2 * kPage - 1));
}

TYPED_TEST(VendorProgram, FinalizeEndsCallsOfOtherThreads) {
  typename TypeParam::Engine owner, client;
  const std::string remote = this->start(owner, kAuto);
  this->start(client, kAuto);
  constexpr std::size_t kThreads = 3;
  std::vector<std::uint8_t> theirs(1 << 20), ours(kThreads * theirs.size());
  ASSERT_EQ(this->add(owner, theirs.data(), theirs.size(), this->kHost), kSuccess);
  ASSERT_EQ(this->add(client, ours.data(), ours.size(), this->kHost), kSuccess);
  std::atomic<int> succeeded = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, target = ours.data() + i * theirs.size()] {
      std::uint32_t code = kSuccess;
      while (code == kSuccess) {
        code =
            client.TransferSync(remote.c_str(), this->kRead, {this->item(target, theirs.data(), theirs.size())}, kMs);
        if (code == kSuccess) ++succeeded;
      }
      EXPECT_EQ(code, kFailed);
    });
  while (succeeded < 10) std::this_thread::yield();
  client.Finalize();
  for (auto& thread : threads) thread.join();
}

TYPED_TEST(VendorProgram, AForkedChildIsToldAndLeavesTheParentAlone) {
  typename TypeParam::Engine owner, client;
  const std::string remote = this->start(owner, kNoStaging);
  this->start(client, kNoStaging);
  std::vector<std::uint8_t> ours(64), theirs = pattern(64);
  ASSERT_EQ(this->add(owner, theirs.data(), 64, this->kHost), kSuccess);
  ASSERT_EQ(this->add(client, ours.data(), 64, this->kHost), kSuccess);
  ASSERT_EQ(client.Connect(remote.c_str(), kMs), kSuccess);
  const std::vector<typename TypeParam::Item> items = {this->item(ours.data(), theirs.data(), 64)};
  const pid_t child = ::fork();
  if (child == 0) {
    const bool told = client.TransferSync(remote.c_str(), this->kRead, items, kMs) == kFailed;
    client.Finalize();
    ::_exit(told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(client.TransferSync(remote.c_str(), this->kRead, items, kMs), kSuccess);
  EXPECT_EQ(ours, theirs);
}

TEST(AdxlProgram, CapabilitiesAndMemoryOfTheApi) {
  std::int32_t value = -1;
  EXPECT_EQ(adxl::AdxlEngine::GetCapability(adxl::AUTO_CONNECT, value), kSuccess);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(adxl::AdxlEngine::GetCapability(adxl::CLIENT_SERVER_COMM, value), kSuccess);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(adxl::AdxlEngine::GetCapability(static_cast<adxl::FeatureType>(99), value), kUnsupported);
  void* memory = nullptr;
  ASSERT_EQ(adxl::AdxlEngine::MallocMem(adxl::MEM_HOST, 10'000, &memory), kSuccess);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kPage, 0U);
  std::memset(memory, 1, 10'000);
  EXPECT_EQ(adxl::AdxlEngine::FreeMem(memory), kSuccess);
  EXPECT_EQ(adxl::AdxlEngine::FreeMem(memory), kParamInvalid) << "twice";
  EXPECT_EQ(adxl::AdxlEngine::MallocMem(adxl::MEM_HOST, 0, &memory), kParamInvalid);
  EXPECT_EQ(adxl::AdxlEngine::MallocMem(adxl::MEM_HOST, 1, nullptr), kParamInvalid);
}

class HixlProgram : public VendorProgram<Hixl> {};

TEST_F(HixlProgram, Notifications) {
  hixl::Hixl a, b;
  const std::string a_name = start(a, {});
  const std::string b_name = start(b, {});
  hixl::NotifyDesc notify{"kv ready", "layer 3"};
  EXPECT_EQ(a.SendNotify(b_name.c_str(), notify, kMs), kNotConnected);
  ASSERT_EQ(a.Connect(b_name.c_str(), kMs), kSuccess);
  for (const std::size_t nbytes : {std::size_t{0}, std::size_t{1}, std::size_t{1024}}) {
    notify.notify_msg = std::string(nbytes, 'x').c_str();
    EXPECT_EQ(a.SendNotify(b_name.c_str(), notify, kMs), kSuccess);
  }
  notify.notify_msg = std::string(1025, 'x').c_str();
  EXPECT_EQ(a.SendNotify(b_name.c_str(), notify, kMs), kParamInvalid);
  notify = {std::string(1025, 'n').c_str(), "m"};
  EXPECT_EQ(a.SendNotify(b_name.c_str(), notify, kMs), kParamInvalid);
  std::vector<std::size_t> lengths;
  while (lengths.size() < 3) {
    std::vector<hixl::NotifyDesc> arrived;
    ASSERT_EQ(b.GetNotifies(arrived), kSuccess);
    for (const auto& each : arrived) {
      EXPECT_STREQ(each.name.GetString(), "kv ready");
      lengths.push_back(each.notify_msg.GetLength());
    }
    std::this_thread::yield();
  }
  EXPECT_EQ(lengths, (std::vector<std::size_t>{0, 1, 1024}));
  std::vector<hixl::NotifyDesc> none;
  ASSERT_EQ(b.GetNotifies(none), kSuccess);
  EXPECT_TRUE(none.empty()) << "the engines' own messages are not the program's";
}

TEST_F(HixlProgram, AsynchronousConnects) {
  hixl::Hixl owner, client;
  const std::string remote = start(owner, {});
  start(client,
        {{"GlobalResourceConfig", R"({"connect_pool.thread_num":"1","connect_pool.task_queue_capacity":"1"})"}});
  using State = hixl::AsyncConnectStatus;
  State state = State::CONNECTED;
  EXPECT_EQ(client.GetAsyncConnectStatus(remote.c_str(), state), kSuccess);
  EXPECT_EQ(state, State::NOT_CONNECT);
  const auto wait = [&](const std::string& name, State wanted, State instead) {
    do {
      ASSERT_EQ(client.GetAsyncConnectStatus(name.c_str(), state), kSuccess);
      std::this_thread::yield();
    } while (state != wanted && state != instead);
    EXPECT_EQ(state, wanted);
  };
  ASSERT_EQ(client.ConnectAsync(remote.c_str(), kMs), kSuccess);
  wait(remote, State::CONNECTED, State::CONNECT_FAILED);
  EXPECT_EQ(client.Connect(remote.c_str(), kMs), kAlreadyConnected);
  ASSERT_EQ(client.ConnectAsync("127.0.0.1:1", kMs), kSuccess);
  wait("127.0.0.1:1", State::CONNECT_FAILED, State::CONNECTED);
  // One runs, one waits; the next finds the queue full, sooner or later.
  std::uint32_t code = kSuccess;
  for (int i = 0; i < 100'000 && code == kSuccess; ++i) code = client.ConnectAsync("127.0.0.1:1", kMs);
  EXPECT_EQ(code, kExhausted);
  wait("127.0.0.1:1", State::CONNECT_FAILED, State::CONNECTED);
  ASSERT_EQ(client.DisconnectAsync(remote.c_str(), kMs), kSuccess);
  wait(remote, State::NOT_CONNECT, State::CONNECT_FAILED);
  EXPECT_EQ(client.Disconnect(remote.c_str(), kMs), kNotConnected);
  std::map<hixl::AscendString, State> all;
  ASSERT_EQ(client.GetAsyncConnectStatus(all), kSuccess);
  EXPECT_EQ(all.size(), 2U);
}

}  // namespace
