#include "onesided/engine/region_table.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "onesided/engine/shared_protocol.h"

namespace onesided {
namespace {

constexpr std::uint64_t kMagic = 0x7265'6769'6f6e'7331;  // "regions1"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kEntriesOffset = 4096;
constexpr std::uint64_t kTableBytes = kEntriesOffset + std::uint64_t{RegionTable::kCapacity} * sizeof(TableEntry);

constexpr std::uint32_t kDeviceBit = 1, kHostAccessibleBit = 2, kExportedBit = 4;

Error os_error(std::string_view what) {
  return {Status::kResourceExhausted, fmt::format("{}: {}", what, std::strerror(errno))};
}

}  // namespace

Result<std::unique_ptr<RegionTable>> RegionTable::create_shared(std::uint64_t instance) {
  Fd file(::memfd_create("onesided-regions", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(kTableBytes)) != 0)
    return os_error("cannot create the region table");
  return create(instance, std::move(file));
}

Result<std::unique_ptr<RegionTable>> RegionTable::create_private(std::uint64_t instance) {
  return create(instance, Fd());
}

Result<std::unique_ptr<RegionTable>> RegionTable::create(std::uint64_t instance, Fd file) {
  const int flags = file.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* base = ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, flags, file.get(), 0);
  if (base == MAP_FAILED) return os_error("cannot map the region table");
  // After this mapping no other writable mapping can be made. Old kernels lack the seal; peers of the same user are
  // trusted.
  if (file.valid()) ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
  std::unique_ptr<RegionTable> table(new RegionTable(base, kTableBytes, std::move(file)));
  table->proof_ = std::make_unique<std::uint64_t>(instance);
  table->capacity_ = kCapacity;
  auto& header = table->header();
  header.magic = kMagic;
  header.version = kVersion;
  header.capacity = kCapacity;
  header.instance = instance;
  header.proof_address = reinterpret_cast<std::uintptr_t>(table->proof_.get());
  return table;
}

Result<std::unique_ptr<RegionTable>> RegionTable::map(Fd file, std::uint64_t nbytes) {
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return os_error("cannot read the size of the peer's region table");
  if (nbytes < kEntriesOffset || static_cast<std::uint64_t>(info.st_size) < nbytes)
    return Error(Status::kParamInvalid,
                 fmt::format("the peer's region table has {} bytes, announced were {}", info.st_size, nbytes));
  void* base = ::mmap(nullptr, nbytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return os_error("cannot map the peer's region table");
  std::unique_ptr<RegionTable> table(new RegionTable(base, nbytes, Fd()));
  const auto& header = table->header();
  const std::uint64_t capacity = (nbytes - kEntriesOffset) / sizeof(TableEntry);
  if (header.magic != kMagic || header.version != kVersion || header.capacity > capacity)
    return Error(
        Status::kParamInvalid,
        fmt::format("the peer's region table has version {} with {} entries in {} bytes; this engine reads version {}",
                    header.version, header.capacity, nbytes, kVersion));
  table->capacity_ = header.capacity;
  return table;
}

RegionTable::~RegionTable() { ::munmap(base_, nbytes_); }

TableEntry& RegionTable::entry(std::uint32_t index) const {
  auto* entries = reinterpret_cast<TableEntry*>(static_cast<char*>(base_) + kEntriesOffset);
  return entries[index];
}

void RegionTable::publish(const RegionDesc& region) {
  ONESIDED_CHECK(region.key.index < capacity_ && region.key.generation != 0, "index={} generation={}", region.key.index,
                 region.key.generation);
  auto& slot = entry(region.key.index);
  publish_row(slot, {region.key.generation,
                     (region.device ? kDeviceBit : 0) | (region.host_accessible ? kHostAccessibleBit : 0) |
                         (region.pieces.empty() ? 0 : kExportedBit),
                     region.address, region.nbytes});
  auto& head = header();
  if (head.used.load(std::memory_order_relaxed) <= region.key.index)
    head.used.store(region.key.index + 1, std::memory_order_release);
  head.epoch.fetch_add(1, std::memory_order_seq_cst);
}

void RegionTable::retire(RegionKey key) {
  if (key.index >= capacity_) return;
  auto& slot = entry(key.index);
  if (slot.live.load(std::memory_order_relaxed) != key.generation) return;
  // Ordered before the owner's later writes into this memory, for every reader, and before the following scan of write
  // leases, for every writer (a writer takes its lease first and then checks `live`).
  retire_row(slot);
  header().epoch.fetch_add(1, std::memory_order_seq_cst);
}

void RegionTable::retire_all() {
  for (std::uint32_t i = 0; i < used(); ++i) retire({i, entry(i).live.load(std::memory_order_relaxed)});
}

bool RegionTable::live(RegionKey key) const {
  if (key.index >= capacity_ || key.generation == 0) return false;
  return row_is_live(entry(key.index), key.generation);
}

std::optional<RegionRow> RegionTable::row(std::uint32_t index) const {
  if (index >= capacity_) return std::nullopt;
  const std::optional<RowWords> words = read_row(entry(index));
  if (!words) return std::nullopt;
  RegionRow row;
  row.address = words->address;
  row.nbytes = words->nbytes;
  row.traits = {{index, words->generation},
                (words->traits & kDeviceBit) != 0,
                (words->traits & kHostAccessibleBit) != 0,
                (words->traits & kExportedBit) != 0};
  return row;
}

RegionIndex::Lookup::Lookup(RegionIndex& index) : index_(index), lock_(index.mutex_) {
  if (index_.table_->epoch() != index_.epoch_) index_.refresh();
}

void RegionIndex::refresh() {
  // The epoch is read first: a change during this read makes the next lookup read again.
  epoch_ = table_->epoch();
  rows_.clear();
  longest_ = 0;
  const std::uint32_t used = table_->used();
  for (std::uint32_t i = 0; i < used; ++i) {
    if (auto row = table_->row(i)) {
      longest_ = std::max(longest_, row->nbytes);
      rows_.push_back(*row);
    }
  }
  std::sort(rows_.begin(), rows_.end(), [](const RegionRow& a, const RegionRow& b) { return a.address < b.address; });
}

const RegionRow* RegionIndex::Lookup::find(std::uint64_t address, std::uint64_t nbytes) ONESIDED_NO_TSA {
  if (last_ && range_within(address, nbytes, last_->address, last_->nbytes)) return last_;
  auto& rows = index_.rows_;
  auto at = std::upper_bound(rows.begin(), rows.end(), address,
                             [](std::uint64_t value, const RegionRow& row) { return value < row.address; });
  // Nearly always the first candidate; regions of the other type may lie in between.
  while (at != rows.begin()) {
    --at;
    if (range_within(address, nbytes, at->address, at->nbytes)) return last_ = &*at;
    if (address - at->address > index_.longest_) break;
  }
  return nullptr;
}

const RegionRow* RegionIndex::Lookup::below(std::uint64_t address) const ONESIDED_NO_TSA {
  auto& rows = index_.rows_;
  auto at = std::upper_bound(rows.begin(), rows.end(), address,
                             [](std::uint64_t value, const RegionRow& row) { return value < row.address; });
  return at == rows.begin() ? nullptr : &*std::prev(at);
}

}  // namespace onesided
