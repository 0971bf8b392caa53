// The memory that one peer has exported. A file is mapped when it is announced: an owner may have more files than this
// process may have descriptors, and a mapping needs none. Pages are allocated at their first use.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "onesided/base/mutex.h"
#include "onesided/transport/shm/file_mapping.h"
#include "onesided/transport/transport.h"

namespace onesided {

// Internally synchronized.
class ShmLink : public CopyLink {
 public:
  bool carries(const RegionTraits& traits) const override;
  void share_file(std::uint64_t file_id, const Fd& file) override;
  void share_region(const RegionDesc& region) override;
  void unshare_region(RegionKey key) override;
  std::optional<Failure> copy(Op op, std::span<const Move> moves) override;

 private:
  struct File {
    std::shared_ptr<FileMapping> mapping;
    std::uint64_t regions = 0;
  };
  struct Piece {
    std::uint64_t address = 0;  // in the owner's process
    std::uint64_t nbytes = 0;
    std::uint64_t file_offset = 0;
    std::shared_ptr<FileMapping> mapping;
  };
  struct Region {
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
    std::vector<Piece> pieces;            // by address, without gaps
    std::vector<std::uint64_t> file_ids;  // one per piece
  };
  struct KeyHash {
    std::size_t operator()(const RegionKey& key) const noexcept {
      return std::hash<std::uint64_t>()(std::uint64_t{key.index} << 32 | key.generation);
    }
  };

  std::shared_ptr<const Region> find(RegionKey key) const;
  static Result<void> copy_one(Op op, const Region& region, const Move& move, std::uint64_t& done);

  mutable Mutex mutex_;
  std::map<std::uint64_t, File> files_ ONESIDED_GUARDED_BY(mutex_);
  std::unordered_map<RegionKey, std::shared_ptr<const Region>, KeyHash> regions_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
