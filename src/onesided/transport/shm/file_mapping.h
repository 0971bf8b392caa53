// Why: a peer's file is mapped as a whole, once, read-only; it becomes writable with the first WRITE.
#pragma once

#include <atomic>
#include <cstdint>

#include "onesided/base/fd.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/transport/transport.h"

namespace onesided {

// Internally synchronized.
class FileMapping {
 public:
  explicit FileMapping(Fd file) : file_(std::move(file)) {}
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  // Where byte `offset` of the file is in this process, with at least nbytes behind it. The file is mapped by the first
  // call and closed then. PARAM_INVALID: the file is not so long. RESOURCE_EXHAUSTED: no address space.
  Result<char*> at(std::uint64_t offset, std::uint64_t nbytes, Op op);

 private:
  Result<void> map() ONESIDED_REQUIRES(mutex_);
  Result<void> make_writable();

  Mutex mutex_;
  Fd file_ ONESIDED_GUARDED_BY(mutex_);
  std::uint64_t nbytes_ = 0;          // written before base_, never again
  std::atomic<char*> base_{nullptr};  // set once
  std::atomic<bool> writable_{false};
};

}  // namespace onesided
