// A peer's file is mapped as a whole, once, read-only; it becomes writable with the first WRITE.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "onesided/base/fd.h"
#include "onesided/base/mutex.h"
#include "onesided/base/result.h"
#include "onesided/transport/transport.h"

namespace onesided {

// Internally synchronized.
class FileMapping {
 public:
  // Keeps no descriptor. PARAM_INVALID: the file is empty. RESOURCE_EXHAUSTED: no address space, or too many mappings.
  static Result<std::shared_ptr<FileMapping>> create(const Fd& file);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  // Where byte `offset` of the file is in this process, with at least nbytes behind it. PARAM_INVALID: the file is not
  // so long. UNSUPPORTED: it cannot be written.
  Result<char*> at(std::uint64_t offset, std::uint64_t nbytes, Op op);

 private:
  FileMapping(char* base, std::uint64_t nbytes) : base_(base), nbytes_(nbytes) {}
  Result<void> make_writable();

  char* const base_;
  const std::uint64_t nbytes_;
  Mutex mutex_;
  std::atomic<bool> writable_{false};
};

}  // namespace onesided
