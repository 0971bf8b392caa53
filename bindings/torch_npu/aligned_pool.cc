#include "aligned_pool.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

namespace onesided::torch_npu {
namespace {

constexpr std::uint64_t kNoPidValidation = 1;  // ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION

std::uint64_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

void AlignedPool::forget_marks(void* address) {
  if (!marked_.load(std::memory_order_relaxed)) [[likely]]
    return;
  const std::lock_guard lock(mutex_);
  unsafe_.erase(number(address));
  collective_work_.erase(number(address));
}

void AlignedPool::set_collective_work(void* address, void* work) {
  const std::lock_guard lock(mutex_);
  marked_ = true;
  collective_work_[number(address)] = work;
}

void* AlignedPool::collective_work(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = collective_work_.find(number(address));
  return found == collective_work_.end() ? nullptr : found->second;
}

void AlignedPool::mark_all_unsafe() {
  const auto addresses = pool->live_addresses();
  const std::lock_guard lock(mutex_);
  marked_ = true;
  unsafe_.insert(addresses.begin(), addresses.end());
}

void AlignedPool::mark_safe(void* address) {
  const std::lock_guard lock(mutex_);
  unsafe_.erase(number(address));
}

bool AlignedPool::is_safe(void* address) {
  const std::lock_guard lock(mutex_);
  return unsafe_.count(number(address)) == 0;
}

std::string AlignedPool::export_key(const SegmentInfo& segment) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = export_keys_.find(segment.address);
    if (found != export_keys_.end()) return found->second;
  }
  // Looked up in the same way as torch_npu does, because the wheel does not export its own wrapper.
  using ExportKey = int (*)(void*, std::size_t, char*, std::size_t, std::uint64_t);
  void* runtime = ::dlopen("libascendcl.so", RTLD_LAZY | RTLD_NOLOAD);
  const auto get_key =
      runtime ? reinterpret_cast<ExportKey>(::dlsym(runtime, "aclrtIpcMemGetExportKey")) : ExportKey{nullptr};
  TORCH_CHECK(get_key, "onesided: this Ascend runtime cannot share memory: it has no aclrtIpcMemGetExportKey");
  char key[kIpcKeyBytes] = {};
  const int code = get_key(reinterpret_cast<void*>(segment.address), segment.nbytes, key, sizeof key, kNoPidValidation);
  TORCH_CHECK(code == 0, "onesided: aclrtIpcMemGetExportKey of ", segment.nbytes, " bytes failed with ", code);
  std::string made(key, sizeof key);
  const std::lock_guard lock(mutex_);
  return export_keys_.emplace(segment.address, std::move(made)).first->second;
}

void AlignedPool::forget_export_key(std::uint64_t segment_address) {
  std::string key;
  {
    const std::lock_guard lock(mutex_);
    const auto found = export_keys_.find(segment_address);
    if (found == export_keys_.end()) return;
    key = std::move(found->second);
    export_keys_.erase(found);
  }
  using CloseKey = int (*)(const char*);
  void* runtime = ::dlopen("libascendcl.so", RTLD_LAZY | RTLD_NOLOAD);
  if (const auto close =
          runtime ? reinterpret_cast<CloseKey>(::dlsym(runtime, "aclrtIpcMemClose")) : CloseKey{nullptr}) {
    (void)close(key.c_str());
  }
}

}  // namespace onesided::torch_npu
