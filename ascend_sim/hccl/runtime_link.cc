#include "ascend_sim/hccl/runtime_link.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "ascend_sim/acl/abi.h"
#include "ascend_sim/acl/sim_api.h"
#include "onesided/base/align.h"

namespace onesided::sim::hccl {

Result<void> MemoryHold::add(const char* what, const void* address, std::uint64_t nbytes) {
  if (nbytes == 0) return {};
  void* hold = nullptr;
  if (onesided_sim_hold(address, nbytes, &hold) != kAclOk) {
    return Error(Status::kParamInvalid,
                 fmt::format("the {} ({} bytes at {}) is not device memory from end to end", what, nbytes, address));
  }
  holds_.emplace_back(hold, onesided_sim_release);
  return {};
}

BufferRef locate(const void* address, std::uint64_t nbytes) {
  BufferRef ref;
  ref.address = reinterpret_cast<std::uint64_t>(address);
  ref.nbytes = nbytes;
  if (nbytes == 0) return ref;
  int fd = -1;
  std::uint64_t offset = 0, base = 0, length = 0;
  struct stat info{};
  if (onesided_sim_export(address, &fd, &offset, &base, &length) == kAclOk &&
      range_within(ref.address, nbytes, base, length) && ::fstat(fd, &info) == 0) {
    ref.file = fd;
    ref.inode = info.st_ino;
    ref.file_offset = offset + (ref.address - base);
  }
  return ref;
}

bool enqueue(void* stream, std::unique_ptr<StreamWork> work) {
  onesided_sim_work item{};
  item.run = [](void* state, int (*aborted)(void*), void* token) -> int {
    const auto ran = static_cast<StreamWork*>(state)->run(StopProbe(aborted, token));
    return ran.ok() ? kAclOk : onesided_sim_fail(kRtInternal, ran.error().text().c_str());
  };
  item.release = [](void* state) { delete static_cast<StreamWork*>(state); };
  item.state = work.get();
  if (onesided_sim_enqueue(stream, &item) != kAclOk) {
    work->refused();
    return false;
  }
  (void)work.release();  // the stream's now
  return true;
}

}  // namespace onesided::sim::hccl
