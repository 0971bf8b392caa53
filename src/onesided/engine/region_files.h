// The files that registered memory lies in. A pool's segment is one file that can contain hundreds of regions: peers
// receive its descriptor once, under an id, and regions refer to that id.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "onesided/base/fd.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/device/device.h"
#include "onesided/wire/region_desc.h"

namespace onesided {

// Internally synchronized.
class RegionFiles {
 public:
  // The files of [address, address + nbytes), each counted once per piece; empty if the memory has no file. There are
  // several pieces if the range consists of several allocations or chunks.
  std::vector<FilePiece> pin(Device& device, std::uint64_t address, std::uint64_t nbytes);
  void unpin(const std::vector<FilePiece>& pieces);
  // A descriptor of the file for a peer; invalid if the file is no longer pinned or the process has no descriptor left.
  Fd duplicate(std::uint64_t file_id);

 private:
  struct Entry {
    Fd file;
    std::pair<dev_t, ino_t> identity;
    std::uint64_t pins = 0;
  };
  std::uint64_t pin_file(Fd file) ONESIDED_REQUIRES(mutex_);
  void unpin_locked(const std::vector<FilePiece>& pieces) ONESIDED_REQUIRES(mutex_);

  Mutex mutex_;
  std::uint64_t next_id_ ONESIDED_GUARDED_BY(mutex_) = 1;
  std::map<std::uint64_t, Entry> files_ ONESIDED_GUARDED_BY(mutex_);
  std::map<std::pair<dev_t, ino_t>, std::uint64_t> ids_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided
