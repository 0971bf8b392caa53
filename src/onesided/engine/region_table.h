// The table of an engine's registered regions. A reader on this host must be able to check, without a message, that the
// memory it copies is registered before and after the copy. The owner therefore keeps the table in a file that local
// peers map read-only; peers on other hosts keep a private copy of the same layout, updated by RegionUpdate messages.
//
// One entry per registration. `live` is the generation while the region is registered and 0 otherwise. A generation is
// never used twice for an index, so if a reader finds the same generation before and after, then nothing in the entry,
// address and length included, has changed in between.
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
  std::atomic<std::uint32_t> used;  // only entries [0, used) have been written
  std::uint32_t reserved;
  std::atomic<std::uint64_t> epoch;  // incremented with every change
};

// A region as its peers see it. A value.
struct RegionRow {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  RegionTraits traits;
};

// Entries of one owner: its own (writable), mapped from it (read-only), or a private copy. Internally synchronized by
// its atomics: any number of readers, one writer at a time (ensured by the caller).
class RegionTable {
 public:
  static constexpr std::uint32_t kCapacity = 1U << 18;

  // Creates the owner's table, in a memfd that others can map read-only only.
  static Result<std::unique_ptr<RegionTable>> create_shared(std::uint64_t instance);
  // Creates a private copy for a peer that sends updates.
  static Result<std::unique_ptr<RegionTable>> create_private(std::uint64_t instance);
  // Maps a peer's table and takes ownership of the file. PARAM_INVALID: not a table that this version can read.
  static Result<std::unique_ptr<RegionTable>> map(Fd file, std::uint64_t nbytes);
  ~RegionTable();
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  // Writer's side. key.index < kCapacity, key.generation > 0.
  void publish(const RegionDesc& region);
  void retire(RegionKey key);
  void retire_all();

  // True if the region is registered. Then everything read from its memory before this call was read while it was
  // registered.
  bool live(RegionKey key) const;
  // The entry, if it is in use. Never a mixture of two registrations.
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

// Finds the region that contains an address, in a table that its owner changes concurrently. Thread-safe.
class RegionIndex {
 public:
  explicit RegionIndex(std::shared_ptr<const RegionTable> table) : table_(std::move(table)) {}

  // Looks up many ranges with one acquisition of the lock. Confined to one thread, short-lived.
  class Lookup {
   public:
    explicit Lookup(RegionIndex& index) ONESIDED_NO_TSA;
    // The registered region that contains all of [address, address + nbytes), or null. Valid while the Lookup exists.
    const RegionRow* find(std::uint64_t address, std::uint64_t nbytes);
    // The nearest region below the address, for error messages.
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
