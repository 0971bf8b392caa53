// The description of a registered range for peers: its key (index and generation), address and kind of memory, and for
// the shm transport the files that contain the bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace onesided {

// Permanently identifies one registration of one engine instance: an index is reused, a pair of index and generation
// never. A value.
struct RegionKey {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // 0: no registration
  friend auto operator<=>(const RegionKey&, const RegionKey&) = default;
};

// A part of a region that another process of this host can map. A value.
struct FilePiece {
  std::uint64_t file_id = 0;        // the owner's name for the file: equal ids are the same file, mapped once
  std::uint64_t file_offset = 0;    // where the piece starts in the file, bytes
  std::uint64_t region_offset = 0;  // where it starts in the region
  std::uint64_t nbytes = 0;
  friend bool operator==(const FilePiece&, const FilePiece&) = default;
};

// The wire form of a Region. A value.
struct RegionDesc {
  RegionKey key;
  std::uint64_t address = 0;      // in the owner's process
  std::uint64_t nbytes = 0;       // > 0; address + nbytes does not overflow (the decoder refuses it)
  bool device = false;            // MemType::kDevice
  bool host_accessible = true;    // the owner's processor can access it at `address`
  std::vector<FilePiece> pieces;  // empty: other processes cannot map it
  friend bool operator==(const RegionDesc&, const RegionDesc&) = default;
};

}  // namespace onesided
