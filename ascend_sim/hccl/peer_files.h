// The memory of ranks in other processes of this host, mapped once and read in place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "onesided/base/mutex.h"
#include "onesided/base/result.h"

namespace onesided::sim::hccl {

// A mapped file. Unmapped with the last reference.
class FileView {
 public:
  // Maps the file that `fd` is in process `pid`, writable or not. NOT_FOUND: it is not the file with this inode (any
  // more). FAILED: it cannot be opened or mapped.
  static Result<std::shared_ptr<FileView>> open(std::int32_t pid, std::int32_t fd, std::uint64_t inode, bool writable);
  FileView(std::byte* base, std::uint64_t nbytes) : base_(base), nbytes_(nbytes) {}
  ~FileView();
  FileView(const FileView&) = delete;
  FileView& operator=(const FileView&) = delete;

  std::byte* base() const { return base_; }
  std::uint64_t nbytes() const { return nbytes_; }

 private:
  std::byte* base_;
  std::uint64_t nbytes_;
};

// Device memory of other processes, read-only. Internally synchronized; one for the process.
class PeerFiles {
 public:
  // Where byte `offset` of the file is in this process, with nbytes behind it; `keep` keeps it there. PARAM_INVALID:
  // the file is not so long. Else as FileView::open.
  Result<const std::byte*> at(std::int32_t pid, std::int32_t fd, std::uint64_t inode, std::uint64_t offset,
                              std::uint64_t nbytes, std::shared_ptr<FileView>& keep);
  static PeerFiles& process();

 private:
  using Key = std::tuple<std::int32_t, std::int32_t, std::uint64_t>;
  Result<std::shared_ptr<FileView>> view(const Key& key);
  void drop_freed() ONESIDED_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<Key, std::shared_ptr<FileView>> views_ ONESIDED_GUARDED_BY(mutex_);
};

}  // namespace onesided::sim::hccl
