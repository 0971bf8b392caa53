// The mapping of a peer's file. The whole file is mapped once, read-only; the first WRITE makes the mapping writable.
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
  // Maps the file and keeps no descriptor. PARAM_INVALID: the file is empty. RESOURCE_EXHAUSTED: no address space, or
  // too many mappings.
  static Result<std::shared_ptr<FileMapping>> create(const Fd& file);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  // The address of byte `offset` of the file in this process; at least nbytes are mapped from there. PARAM_INVALID: the
  // range exceeds the file. UNSUPPORTED: the file cannot be written.
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
