// Device memory that the host cannot touch, devices with an alignment rule, memory put together from chunks: the
// same operations, over devices that count calls and fail on demand.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "test_device.h"

namespace onesided::testing {
namespace {

constexpr std::uint64_t kDeviceBytes = 32 * kMiB;

// One arena of device memory. Its addresses cannot be touched; the bytes are elsewhere and only copies reach them.
class DistantDevice : public TestDevice {
 public:
  explicit DistantDevice(std::uint64_t alignment = 1) : alignment_(alignment), bytes_(kDeviceBytes) {
    void* base = ::mmap(nullptr, 2 * kDeviceBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    reserved_ = base;
    base_ = *align_up(reinterpret_cast<std::uint64_t>(base), kAscendPageBytes);
  }
  ~DistantDevice() override { ::munmap(reserved_, 2 * kDeviceBytes); }

  std::uint64_t base() const { return base_; }
  std::uint8_t* bytes() { return bytes_.data(); }
  bool holds(std::uint64_t address) const override { return address >= base_ && address - base_ < kDeviceBytes; }
  void fail_copy(int which) { copies_left_ = which; }
  // Copies that touch this address fail, and only they.
  void fail_at(std::uint64_t address) { bad_address_ = address; }

  std::uint64_t registration_alignment() const override { return alignment_; }
  bool host_accessible() const override { return false; }
  Result<void> copy_to_host(void* host, const void* device, std::uint64_t nbytes) override {
    ONESIDED_TRY(may_copy(device, nbytes));
    std::memcpy(host, at(device), nbytes);
    return {};
  }
  Result<void> copy_from_host(void* device, const void* host, std::uint64_t nbytes) override {
    ONESIDED_TRY(may_copy(device, nbytes));
    std::memcpy(at(device), host, nbytes);
    return {};
  }

 private:
  std::uint8_t* at(const void* device) { return bytes_.data() + (reinterpret_cast<std::uint64_t>(device) - base_); }
  Result<void> may_copy(const void* device, std::uint64_t nbytes) {
    const bool bad = bad_address_ - reinterpret_cast<std::uint64_t>(device) < nbytes;
    if (copies_left_.fetch_sub(1) == 1 || bad) return Error(Status::kFailed, "the device failed this copy");
    return {};
  }
  const std::uint64_t alignment_;
  std::vector<std::uint8_t> bytes_;
  std::atomic<int> copies_left_{0};
  std::atomic<std::uint64_t> bad_address_{0};
  void* reserved_;
  std::uint64_t base_;
};

// 16 MiB of contiguous addresses, each 2 MiB of them a file of its own.
class ChunkedDevice : public DistantDevice {
 public:
  static constexpr std::uint64_t kChunk = 2 * kMiB, kChunks = 8;
  ChunkedDevice() {
    for (std::uint64_t i = 0; i < kChunks; ++i) {
      files_.emplace_back(::memfd_create("chunk", MFD_CLOEXEC));
      ONESIDED_CHECK(::ftruncate(files_.back().get(), kChunk + 4096) == 0, "ftruncate");
      void* mapped = ::mmap(reinterpret_cast<void*>(base() + i * kChunk), kChunk, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED, files_.back().get(), 4096);
      ONESIDED_CHECK(mapped != MAP_FAILED, "mmap");
    }
  }
  bool host_accessible() const override { return true; }
  Result<ExportedMemory> export_memory(const void* address) override {
    const std::uint64_t chunk = (reinterpret_cast<std::uint64_t>(address) - base()) / kChunk;
    if (chunk >= kChunks) return Error(Status::kUnsupported, "not in a chunk");
    return ExportedMemory{files_[chunk].duplicate(), 4096, base() + chunk * kChunk, kChunk};
  }

 private:
  std::vector<Fd> files_;
};

class DeviceRules : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, DeviceRules, ::testing::Values("shm", "cma", "tcp"), transport_name);

TEST_P(DeviceRules, LocalDeviceMemoryIsCopiedThroughItsDevice) {
  DistantDevice device;
  GuardedMemory theirs(5 * kMiB, true);
  theirs.fill_pattern(1);
  const auto original = theirs.copy();
  const auto owner = open(GetParam()), reader = open_with(device, GetParam());
  ASSERT_OK(owner->register_mem(theirs.address(), theirs.size(), MemType::kHost));
  ASSERT_OK(reader->register_mem(device.base(), kDeviceBytes, MemType::kDevice));
  ASSERT_OK(reader->connect(owner->id(), kTestMs));
  const TransferItem item{device.base() + 77, theirs.address() + 5, 4 * kMiB + 3};
  ASSERT_OK(reader->transfer_sync(owner->id(), Op::kRead, TransferList{{&item, 1}}, kTestMs));
  EXPECT_EQ(0, std::memcmp(device.bytes() + 77, original.data() + 5, item.nbytes));
  EXPECT_EQ(0, device.bytes()[76] + device.bytes()[77 + item.nbytes]);
  std::memset(theirs.data(), 0, theirs.size());
  ASSERT_OK(reader->transfer_sync(owner->id(), Op::kWrite, TransferList{{&item, 1}}, kTestMs));
  EXPECT_EQ(0, std::memcmp(theirs.data() + 5, original.data() + 5, item.nbytes));
  EXPECT_EQ(0, theirs.data()[4]);
}

TEST_P(DeviceRules, AFailedDeviceCopyFailsTheTransfer) {
  DistantDevice device;
  GuardedMemory theirs(8 * kMiB, true);
  const auto owner = open(GetParam()), reader = open_with(device, GetParam());
  ASSERT_OK(owner->register_mem(theirs.address(), theirs.size(), MemType::kHost));
  ASSERT_OK(reader->register_mem(device.base(), kDeviceBytes, MemType::kDevice));
  ASSERT_OK(reader->connect(owner->id(), kTestMs));
  device.fail_copy(3);
  const TransferItem item{device.base(), theirs.address(), theirs.size()};
  const auto transfer = reader->transfer_async(owner->id(), Op::kRead, TransferList{{&item, 1}}, kTestMs);
  ASSERT_OK(transfer);
  ASSERT_OK((*transfer)->wait(Deadline::never()));
  EXPECT_EQ(TransferStatus::kFailed, (*transfer)->status());
  EXPECT_LT((*transfer)->bytes_done(), theirs.size());
  // tcp passes the status on, copies say what the device said.
  if (GetParam() != "tcp") {
    EXPECT_NE(std::string::npos, (*transfer)->error()->text().find("the device failed this copy"));
  }
}

// Field case B11: one item fails while the batch runs, wherever it stands in it; the others arrive, and both are told.
TEST_P(DeviceRules, OneItemFailsAloneInEveryOrder) {
  constexpr std::uint64_t kItem = 64 * kKiB;
  DistantDevice device;
  GuardedMemory theirs(4 * kItem, true);
  theirs.fill_pattern(2);
  const auto owner = open(GetParam()), reader = open_with(device, GetParam());
  ASSERT_OK(owner->register_mem(theirs.address(), theirs.size(), MemType::kHost));
  ASSERT_OK(reader->register_mem(device.base(), kDeviceBytes, MemType::kDevice));
  ASSERT_OK(reader->connect(owner->id(), kTestMs));
  // Places that do not touch each other, so that nothing is merged.
  const auto place = [](std::uint64_t i) { return i * 2 * kItem; };
  device.fail_at(device.base() + place(1) + kItem / 2);
  std::vector<std::uint64_t> order = {0, 1, 2, 3};
  do {
    std::memset(device.bytes(), 0, 8 * kItem);
    std::vector<TransferItem> items;
    for (const auto i : order) items.push_back({device.base() + place(i), theirs.address() + i * kItem, kItem});
    const auto begun = reader->transfer_async(owner->id(), Op::kRead, TransferList{items}, kTestMs);
    ASSERT_OK(begun);
    const auto& transfer = **begun;
    ASSERT_OK((*begun)->wait(Deadline::never()));
    const auto results = transfer.items();
    for (std::size_t k = 0; k < 4; ++k) {
      const bool bad = order[k] == 1;
      EXPECT_EQ(bad ? Status::kFailed : Status::kSuccess, results[k].status);
      EXPECT_EQ(bad ? 0 : kItem, results[k].bytes_done);
      if (bad) continue;
      EXPECT_EQ(0, std::memcmp(device.bytes() + place(order[k]), theirs.data() + order[k] * kItem, kItem));
    }
    for (int poll = 0; poll < 100; ++poll) {
      ASSERT_EQ(TransferStatus::kFailed, transfer.status());
      ASSERT_EQ(3 * kItem, transfer.bytes_done());
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(DeviceMemoryOfTheOwner, IsReadOverTcpAndRefusedWhereNothingCarriesIt) {
  DistantDevice device;
  GuardedMemory mine(9 * kMiB, false);
  for (std::uint64_t i = 0; i < kDeviceBytes; ++i) device.bytes()[i] = static_cast<std::uint8_t>(i * 7 + (i >> 12));
  const auto owner = open_with(device, "shm,cma,tcp"), reader = open("shm,cma,tcp"), without = open("shm,cma");
  ASSERT_OK(owner->register_mem(device.base(), kDeviceBytes, MemType::kDevice));
  for (auto* engine : {reader.get(), without.get()}) {
    ASSERT_OK(engine->register_mem(mine.address(), mine.size(), MemType::kHost));
    ASSERT_OK(engine->connect(owner->id(), kTestMs));
  }
  const TransferItem item{mine.address() + 1, device.base() + 3, 8 * kMiB + 5};
  EXPECT_STATUS(Status::kUnsupported,
                without->transfer_sync(owner->id(), Op::kRead, TransferList{{&item, 1}}, kTestMs));
  ASSERT_OK(reader->transfer_sync(owner->id(), Op::kRead, TransferList{{&item, 1}}, kTestMs));
  EXPECT_EQ(0, std::memcmp(mine.data() + 1, device.bytes() + 3, item.nbytes));
  std::memset(mine.data(), 0x5A, mine.size());
  ASSERT_OK(reader->transfer_sync(owner->id(), Op::kWrite, TransferList{{&item, 1}}, kTestMs));
  EXPECT_EQ(0, std::memcmp(mine.data() + 1, device.bytes() + 3, item.nbytes));
}

TEST(DeviceMemoryOfTheOwner, InOneEngineGoesThroughABuffer) {
  DistantDevice device;
  const auto engine = open_with(device, "shm");
  device.bytes()[5] = 9;
  ASSERT_OK(engine->register_mem(device.base(), kDeviceBytes, MemType::kDevice));
  const TransferItem item{device.base() + 16 * kMiB, device.base(), 3 * kMiB};
  ASSERT_OK(engine->transfer_sync(engine->id(), Op::kRead, TransferList{{&item, 1}}, kTestMs));
  EXPECT_EQ(9, device.bytes()[16 * kMiB + 5]);
}

TEST(RegistrationAlignment, IsAskedAtRegisterAndSaysWhatToDo) {
  DistantDevice device(kAscendPageBytes);
  const auto engine = open_with(device, "shm");
  const auto off = engine->register_mem(device.base() + 0x1b8000, 4 * kMiB, MemType::kDevice);
  EXPECT_STATUS(Status::kMisaligned, off);
  EXPECT_NE(std::string::npos, off.error().text().find("0x1b8000 past a 2 MiB boundary")) << off.error().text();
  EXPECT_NE(std::string::npos, off.error().text().find("2097152")) << off.error().text();
  EXPECT_STATUS(Status::kMisaligned, engine->register_mem(device.base(), 2 * kMiB - 512, MemType::kDevice));
  EXPECT_OK(engine->register_mem(device.base(), 4 * kMiB, MemType::kDevice));
  EXPECT_EQ(2'097'152, *engine->capability("REGISTRATION_ALIGNMENT"));
  GuardedMemory host(1000, false);
  EXPECT_OK(engine->register_mem(host.address() + 1, 13, MemType::kHost));  // asked of device memory only
}

TEST(ChunkedMemory, IsReadAndWrittenAcrossEveryBoundary) {
  ChunkedDevice device;
  constexpr std::uint64_t kWhole = ChunkedDevice::kChunk * ChunkedDevice::kChunks;
  auto* theirs = reinterpret_cast<std::uint8_t*>(device.base());
  for (std::uint64_t i = 0; i < kWhole; ++i) theirs[i] = static_cast<std::uint8_t>(i * 13 + (i >> 16));
  GuardedMemory mine(kWhole, false);
  const auto owner = open_with(device, "shm"), reader = open("shm");
  ASSERT_OK(owner->register_mem(device.base(), kWhole, MemType::kDevice));
  ASSERT_OK(reader->register_mem(mine.address(), mine.size(), MemType::kHost));
  ASSERT_OK(reader->connect(owner->id(), kTestMs));
  auto move = [&](Op op, std::uint64_t offset, std::uint64_t nbytes) {
    const TransferItem item{mine.address() + offset, device.base() + offset, nbytes};
    return reader->transfer_sync(owner->id(), op, TransferList{{&item, 1}}, kTestMs);
  };
  for (std::uint64_t boundary = ChunkedDevice::kChunk; boundary < kWhole; boundary += ChunkedDevice::kChunk) {
    ASSERT_OK(move(Op::kRead, boundary - 1000, 2001));
    EXPECT_EQ(0, std::memcmp(mine.data() + boundary - 1000, theirs + boundary - 1000, 2001));
  }
  ASSERT_OK(move(Op::kRead, 0, kWhole));
  EXPECT_EQ(0, std::memcmp(mine.data(), theirs, kWhole));
  mine.fill_pattern(3);
  ASSERT_OK(move(Op::kWrite, 100, kWhole - 200));
  EXPECT_EQ(0, std::memcmp(mine.data() + 100, theirs + 100, kWhole - 200));
  std::uint64_t over_shm = 0;
  const auto stats = reader->stats();
  for (const auto& [id, peer] : stats->peers)
    for (const auto& [transport, bytes] : peer.bytes) over_shm += transport == "shm" ? bytes : 0;
  EXPECT_EQ(7 * 2001 + 2 * kWhole - 200, over_shm);
}

// Memory that was unmapped without being deregistered: an error for the item it belongs to, never a fault.
TEST(VanishedMemory, FailsItsItemAndNoOther) {
  const auto owner = open("cma"), reader = open("cma");
  ASSERT_OK(reader->connect(owner->id(), kTestMs));
  constexpr std::uint64_t kItem = 64 * kKiB;
  auto* theirs =
      static_cast<char*>(::mmap(nullptr, 4 * kItem, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(theirs, 7, 4 * kItem);
  const auto base = reinterpret_cast<std::uint64_t>(theirs);
  ASSERT_OK(owner->register_mem(base, 4 * kItem, MemType::kHost));
  GuardedMemory mine(4 * kItem, false);
  ASSERT_OK(reader->register_mem(mine.address(), mine.size(), MemType::kHost));
  ::munmap(theirs + kItem, kItem);
  std::vector<std::uint64_t> order = {0, 1, 2, 3};
  do {
    std::memset(mine.data(), 0, mine.size());
    std::vector<TransferItem> items;
    for (const auto i : order) items.push_back({mine.address() + i * kItem, base + i * kItem, kItem});
    const auto transfer = reader->transfer_async(owner->id(), Op::kRead, TransferList{items}, kTestMs);
    ASSERT_OK(transfer);
    ASSERT_OK((*transfer)->wait(Deadline::never()));
    EXPECT_EQ(TransferStatus::kFailed, (*transfer)->status());
    EXPECT_EQ(3 * kItem, (*transfer)->bytes_done());
    const auto results = (*transfer)->items();
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(order[k] == 1 ? Status::kFailed : Status::kSuccess, results[k].status);
      EXPECT_EQ(order[k] == 1 ? 0 : kItem, results[k].bytes_done);
      EXPECT_EQ(order[k] == 1 ? 0 : 7, mine.data()[order[k] * kItem + kItem - 1]);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  ::munmap(theirs, 4 * kItem);
}

}  // namespace
}  // namespace onesided::testing
