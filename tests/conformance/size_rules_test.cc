// Lengths beyond 4 GiB in one item, and notifications by the ten thousand: counts that only large numbers reach.
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <thread>

#include "test_device.h"

namespace onesided::testing {
namespace {

// More than 4 GiB of addresses over little memory: one file, mapped again and again, and at the end one of its own.
class LongMemory : public TestDevice {
 public:
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer keeps two bytes for each that is touched, at its address: 16 GiB for this test.
  static constexpr std::uint64_t kChunks = 2;
#else
  static constexpr std::uint64_t kChunks = 64;
#endif
  static constexpr std::uint64_t kChunk = 64 * kMiB, kTail = 2 * kMiB;
  static constexpr std::uint64_t kBytes = kChunks * kChunk + kTail;

  LongMemory() : repeated_(file(kChunk)), tail_(file(kTail)) {
    void* all = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ONESIDED_CHECK(all != MAP_FAILED, "mmap");
    base_ = static_cast<std::uint8_t*>(all);
    for (std::uint64_t i = 0; i < kChunks; ++i) map(base_ + i * kChunk, kChunk, repeated_);
    map(tail(), kTail, tail_);
  }
  ~LongMemory() override { ::munmap(base_, kBytes); }

  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(base_); }
  std::uint8_t* tail() const { return base_ + kChunks * kChunk; }
  bool holds(std::uint64_t at) const override { return at - address() < kBytes; }
  Result<ExportedMemory> export_memory(const void* place) override {
    const auto at = reinterpret_cast<std::uint64_t>(place);
    const std::uint64_t chunk = (at - address()) / kChunk;
    const bool last = chunk == kChunks;
    return ExportedMemory{(last ? tail_ : repeated_).duplicate(), 0, address() + chunk * kChunk, last ? kTail : kChunk};
  }

 private:
  static Fd file(std::uint64_t nbytes) {
    Fd made(::memfd_create("long", MFD_CLOEXEC));
    ONESIDED_CHECK(::ftruncate(made.get(), static_cast<off_t>(nbytes)) == 0, "ftruncate");
    return made;
  }
  static void map(std::uint8_t* at, std::uint64_t nbytes, const Fd& file) {
    void* mapped = ::mmap(at, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0);
    ONESIDED_CHECK(mapped != MAP_FAILED, "mmap");
  }

  Fd repeated_, tail_;
  std::uint8_t* base_ = nullptr;
};

class SizeRules : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, SizeRules, ::testing::Values("self", "shm", "cma", "tcp"), transport_name);

void fill(std::uint8_t* bytes, std::uint64_t nbytes, std::uint8_t seed) {
  for (std::uint64_t i = 0; i < nbytes; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + (i >> 12) + seed);
}

TEST_P(SizeRules, OneItemOfMoreThanFourGiB) {
  LongMemory theirs, mine;
  fill(reinterpret_cast<std::uint8_t*>(theirs.address()), LongMemory::kChunk, 1);
  fill(theirs.tail(), LongMemory::kTail, 99);
  const bool self = GetParam() == "self";
  const std::string transports = self ? "shm" : GetParam();
  const auto owner = open_with(theirs, transports), other = self ? nullptr : open_with(mine, transports);
  auto& reader = other ? *other : *owner;
  const MemType type = self ? MemType::kHost : MemType::kDevice;
  ASSERT_OK(owner->register_mem(theirs.address(), LongMemory::kBytes, type));
  ASSERT_OK(reader.register_mem(mine.address(), LongMemory::kBytes, type));
  if (other) ASSERT_OK(other->connect(owner->id(), kTestMs));
  for (const Op op : {Op::kRead, Op::kWrite}) {
    const TransferItem item{mine.address(), theirs.address(), LongMemory::kBytes};
    const auto transfer = reader.transfer_async(owner->id(), op, TransferList{{&item, 1}});
    ASSERT_OK(transfer);
    ASSERT_OK((*transfer)->wait(Deadline::never()));
    ASSERT_EQ(TransferStatus::kCompleted, (*transfer)->status()) << (*transfer)->error()->text();
    EXPECT_EQ(LongMemory::kBytes, (*transfer)->bytes_done());
    EXPECT_EQ(0, std::memcmp(mine.tail(), theirs.tail(), LongMemory::kTail));
    EXPECT_EQ(0, std::memcmp(reinterpret_cast<void*>(mine.address()), reinterpret_cast<void*>(theirs.address()),
                             LongMemory::kChunk));
    // Then the other way, with other bytes.
    fill(reinterpret_cast<std::uint8_t*>(mine.address()), LongMemory::kChunk, 5);
    fill(mine.tail(), LongMemory::kTail, 55);
  }
  const TransferItem beyond{mine.address(), theirs.address() + 1, LongMemory::kBytes};
  EXPECT_STATUS(Status::kParamInvalid, reader.transfer_sync(owner->id(), Op::kRead, TransferList{{&beyond, 1}}));
}

// Field case B14: each exactly once, byte for byte, in order per sender.
TEST(Notifications, TenThousandFromFourSenders) {
  constexpr int kSenders = 4, kEach = 2500;
  const auto owner = open("shm");
  std::vector<std::thread> senders;
  for (int sender = 0; sender < kSenders; ++sender) {
    senders.emplace_back([&, sender] {
      const auto engine = open("shm");
      ASSERT_OK(engine->connect(owner->id(), kTestMs));
      for (int i = 0; i < kEach; ++i)
        ASSERT_OK(engine->send_notify(owner->id(), std::to_string(sender), std::to_string(i), kTestMs));
    });
  }
  std::map<std::string, int> next;
  for (int heard = 0; heard < kSenders * kEach;) {
    ASSERT_OK(owner->wait_notifies(kTestMs));
    const auto arrived = owner->get_notifies();
    ASSERT_OK(arrived);
    for (const auto& [name, message] : *arrived) {
      ASSERT_EQ(std::to_string(next[name]++), message) << "from " << name;
      ++heard;
    }
  }
  for (auto& sender : senders) sender.join();
  EXPECT_EQ(kSenders, static_cast<int>(next.size()));
  EXPECT_TRUE(owner->get_notifies()->empty());
}

}  // namespace
}  // namespace onesided::testing
