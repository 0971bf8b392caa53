// A reader on this host must know, without asking anybody, whether the memory it is about to copy is registered,
// and whether it still was when the copy ended. So the owner keeps its table of regions in a file that its peers map
// read-only; peers elsewhere keep a private copy of the same layout, fed by RegionUpdate messages.
//
// One entry a registration. `live` is the generation while the region is registered and 0 otherwise; a generation is
// never used twice for an index, so a reader that finds the same generation before and after knows that nothing has
// changed in between, address and length included.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "onesided/base/fd.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/transport/transport.h"
#include "onesided/wire/region_desc.h"

namespace onesided {

struct TableEntry {
  std::atomic<std::uint32_t> live;    // generation, or 0
  std::atomic<std::uint32_t> traits;  // TraitBits
  std::atomic<std::uint64_t> address;
  std::atomic<std::uint64_t> nbytes;
  std::uint64_t reserved;
};
static_assert(sizeof(TableEntry) == 32 && std::atomic<std::uint64_t>::is_always_lock_free);

struct TableHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t capacity;           // entries
  std::uint64_t instance;           // of the owner; PeerInfo::instance
  std::uint64_t proof_address;      // where in the owner's own memory `instance` lies
  std::atomic<std::uint32_t> used;  // entries [0, used) have ever been written
  std::uint32_t reserved;
  std::atomic<std::uint64_t> epoch;  // grows with every change
};

// A region as its peers see it. A value.
struct RegionRow {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  RegionTraits traits;
};

// Entries of one owner: its own (writable), mapped from it (read-only), or a private copy. Internally synchronized by
// its atomics: one writer at a time (its caller sees to that), any number of readers.
class RegionTable {
 public:
  static constexpr std::uint32_t kCapacity = 1U << 18;

  // The owner's table, in a memfd that others can only map read-only.
  static Result<std::unique_ptr<RegionTable>> create_shared(std::uint64_t instance);
  // A private copy for a peer that sends updates.
  static Result<std::unique_ptr<RegionTable>> create_private(std::uint64_t instance);
  // A peer's table. Takes the file. PARAM_INVALID: not a table this version reads.
  static Result<std::unique_ptr<RegionTable>> map(Fd file, std::uint64_t nbytes);
  ~RegionTable();
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  // Writer's side. key.index < kCapacity, key.generation > 0.
  void publish(const RegionDesc& region);
  void retire(RegionKey key);
  void retire_all();

  // Still registered. Everything read from the region's memory before this call was read while it was, if it says so.
  bool live(RegionKey key) const;
  // The entry, if it is in use; never a mixture of two registrations.
  std::optional<RegionRow> row(std::uint32_t index) const;
  std::uint32_t used() const { return header().used.load(std::memory_order_acquire); }
  std::uint64_t epoch() const { return header().epoch.load(std::memory_order_acquire); }
  std::uint64_t instance() const { return header().instance; }
  std::uint64_t proof_address() const { return header().proof_address; }
  const Fd& file() const { return file_; }
  std::uint64_t nbytes() const { return nbytes_; }

 private:
  RegionTable(void* base, std::uint64_t nbytes, Fd file) : base_(base), nbytes_(nbytes), file_(std::move(file)) {}
  static Result<std::unique_ptr<RegionTable>> create(std::uint64_t instance, Fd file);
  TableHeader& header() const { return *static_cast<TableHeader*>(base_); }
  TableEntry& entry(std::uint32_t index) const;

  void* base_;
  std::uint64_t nbytes_;
  std::uint32_t capacity_ = 0;
  Fd file_;
  std::unique_ptr<std::uint64_t> proof_;  // the owner's: what proof_address points to
};

// Finds the region that holds an address in a table that others change. Thread-safe.
class RegionIndex {
 public:
  explicit RegionIndex(std::shared_ptr<const RegionTable> table) : table_(std::move(table)) {}

  // Looks up many ranges with the lock taken once. Confined to one thread, short-lived.
  class Lookup {
   public:
    explicit Lookup(RegionIndex& index) ONESIDED_NO_TSA;
    // The registered region that holds all of [address, address + nbytes), or null. Valid while the Lookup lives.
    const RegionRow* find(std::uint64_t address, std::uint64_t nbytes);
    // What is nearest below the address, for error texts.
    const RegionRow* below(std::uint64_t address) const;

   private:
    RegionIndex& index_;
    MutexLock lock_;
    const RegionRow* last_ = nullptr;
  };
  const RegionTable& table() const { return *table_; }

 private:
  void refresh() ONESIDED_REQUIRES(mutex_);

  const std::shared_ptr<const RegionTable> table_;
  Mutex mutex_;
  std::uint64_t epoch_ ONESIDED_GUARDED_BY(mutex_) = ~0ULL;
  std::vector<RegionRow> rows_ ONESIDED_GUARDED_BY(mutex_);  // by address; only regions of different kind can overlap
  std::uint64_t longest_ ONESIDED_GUARDED_BY(mutex_) = 0;
};

}  // namespace onesided
