#include "ascend_sim/acl/sharing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "ascend_sim/acl/errors.h"
#include "ascend_sim/acl/runtime.h"
#include "onesided/base/align.h"
#include "onesided/base/log.h"

namespace onesided::sim {
namespace {

constexpr std::string_view kKeyPrefix = "onesided-sim-";

// The driver's words for memory that it will not share.
AclError refuse_misaligned(const char* function, const void* address, std::uint64_t nbytes) {
  const std::string words =
      fmt::format("Invalid para. va={} len={:#x} page_size={}", address, nbytes, kAscendPageBytes);
  log_line(LogLevel::kError, fmt::format("[drv] {}", words));
  return fail(kRtDriverInternal, "{}: {}", function, words);
}

bool may_import(const ExportRecord& record) {
  if (record.any_process || record.owner.pid == ::getpid()) return true;
  const auto end = record.pids.begin() + record.pid_count;
  return std::find(record.pids.begin(), end, ::getpid()) != end;
}

// The owner's memory file, checked to be the one that was exported.
Result<Fd> open_exported(const ExportRecord& record) {
  const std::string path = fmt::format("/proc/{}/fd/{}", record.owner.pid, record.fd);
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status{};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) {
    return Error{Status::kFailed, fmt::format("cannot open {}: {}", path, std::strerror(errno))};
  }
  if (status.st_ino != record.inode) return Error{Status::kNotFound, "the exported memory was freed"};
  return file;
}

Result<ExportRecord> importable(std::uint64_t id) {
  ONESIDED_TRY_ASSIGN(ledger, Ledger::machine());
  ONESIDED_TRY_ASSIGN(record, ledger->look_up(id));
  if (!may_import(record)) {
    return Error{Status::kAuthFailed,
                 fmt::format("process {} is not among those that the owner (process {}) lets import", ::getpid(),
                             record.owner.pid)};
  }
  return record;
}

}  // namespace

std::string key_of(std::uint64_t id) { return fmt::format("{}{:016x}", kKeyPrefix, id); }

std::uint64_t id_of(const char* key) {
  const std::string_view text = key ? std::string_view(key, ::strnlen(key, 64)) : "";
  if (!text.starts_with(kKeyPrefix)) return 0;
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data() + kKeyPrefix.size(), text.data() + text.size(), id, 16);
  return error == std::errc() && end == text.data() + text.size() ? id : 0;
}

Sharing& sharing() {
  static auto* instance = new Sharing;
  return *instance;
}

AclError Sharing::export_range(void* address, std::uint64_t nbytes, char* key, std::size_t capacity, bool any_process) {
  constexpr const char* kName = "aclrtIpcMemGetExportKey";
  const MappingPtr mapping = runtime().memory.find(address);
  if (!key || !mapping || !mapping->on_device() || !mapping->backing || nbytes == 0) {
    return fail(kRtParamInvalid, "{}: {} bytes at {} are not device memory", kName, nbytes, address);
  }
  const auto at = reinterpret_cast<std::uint64_t>(address);
  if (!range_within(at, nbytes, mapping->base, mapping->nbytes)) {
    return fail(kRtParamInvalid, "{}: {} bytes at {} run beyond one allocation", kName, nbytes, address);
  }
  if (!is_aligned(at | nbytes, kAscendPageBytes)) return refuse_misaligned(kName, address, nbytes);
  const auto ledger = Ledger::machine();
  if (!ledger.ok()) return fail(kRtDriverInternal, "{}: {}", kName, ledger.error().text());
  ExportRecord record;
  record.fd = mapping->backing->fd();
  record.inode = mapping->backing->inode();
  record.file_offset = mapping->file_offset + (at - mapping->base);
  record.nbytes = nbytes;
  record.physical_device = runtime().device(mapping->device).physical();
  record.any_process = any_process;
  const auto id = (*ledger)->publish(record);
  if (!id.ok()) return fail(kRtResourceAlloc, "{}: {}", kName, id.error().text());
  const std::string text = key_of(*id);
  if (text.size() + 1 > capacity) {
    (*ledger)->withdraw(*id);
    return fail(kRtParamInvalid, "{}: a key needs a buffer of {} bytes, not {}", kName, text.size() + 1, capacity);
  }
  std::memcpy(key, text.c_str(), text.size() + 1);
  MutexLock lock(mutex_);
  exports_[*id] = mapping->base;
  return kAclOk;
}

AclError Sharing::export_piece(void* handle, bool any_process, std::uint64_t* id) {
  constexpr const char* kName = "aclrtMemExportToShareableHandle";
  const auto piece = virtual_memory().pieces.find(handle);
  if (!piece || !id) return fail(kRtParamInvalid, "{}: {} is not physical memory", kName, handle);
  const auto ledger = Ledger::machine();
  if (!ledger.ok()) return fail(kRtDriverInternal, "{}: {}", kName, ledger.error().text());
  MutexLock lock(mutex_);
  if (piece->export_id) {
    *id = piece->export_id;  // one piece, one handle
    return kAclOk;
  }
  ExportRecord record;
  record.fd = piece->backing->fd();
  record.inode = piece->backing->inode();
  record.nbytes = piece->backing->nbytes();
  record.physical_device = piece->device >= 0 ? runtime().device(piece->device).physical() : -1;
  record.any_process = any_process;
  const auto published = (*ledger)->publish(record);
  if (!published.ok()) return fail(kRtResourceAlloc, "{}: {}", kName, published.error().text());
  *id = piece->export_id = *published;
  return kAclOk;
}

AclError Sharing::allow(const char* function, std::uint64_t id, const std::int32_t* pids, std::size_t count) {
  if (!pids || count == 0) return fail(kRtParamInvalid, "{}: no process given", function);
  const auto ledger = Ledger::machine();
  if (!ledger.ok()) return fail(kRtDriverInternal, "{}: {}", function, ledger.error().text());
  const auto allowed = (*ledger)->allow(id, pids, count);
  return allowed.ok() ? kAclOk : fail(kRtParamInvalid, "{}: {}", function, allowed.error().text());
}

AclError Sharing::import_range(const char* key, void** address) {
  constexpr const char* kName = "aclrtIpcMemImportByKey";
  if (!address) return fail(kRtParamInvalid, "{}: null pointer for the answer", kName);
  const std::uint64_t id = id_of(key);
  const auto context = current_context(kName);
  if (!context) return kRtContextNull;
  const auto record = importable(id);
  if (!record.ok()) return fail(kRtParamInvalid, "{}: {}", kName, record.error().text());
  {
    MutexLock lock(mutex_);
    if (imports_.count(id)) return fail(kRtParamInvalid, "{}: this process has imported {} already", kName, key);
  }
  auto file = open_exported(*record);
  if (!file.ok()) return fail(kRtDriverInternal, "{}: {}", kName, file.error().text());
  void* reserved = runtime().addresses.reserve(record->nbytes, kAscendPageBytes);
  if (!reserved) return fail(kRtMemoryAllocation, "{}: no address range of {} bytes", kName, record->nbytes);
  auto mapping = std::make_shared<Mapping>();
  mapping->kind = MemoryKind::kImported;
  mapping->base = reinterpret_cast<std::uint64_t>(reserved);
  mapping->nbytes = record->nbytes;
  mapping->device = context->device.logical();
  mapping->file_offset = record->file_offset;
  mapping->page_bytes = kAscendPageBytes;
  mapping->owned_base = mapping->base;
  mapping->owned_bytes = record->nbytes;
  mapping->backing = std::make_shared<Backing>(std::move(*file), record->nbytes, -1);
  void* mapped = ::mmap(reserved, record->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        mapping->backing->fd(), static_cast<off_t>(record->file_offset));
  if (mapped == MAP_FAILED) return fail(kRtDriverInternal, "{}: {}", kName, std::strerror(errno));
  ::madvise(mapped, record->nbytes, MADV_DONTFORK);
  runtime().memory.add(std::move(mapping));
  *address = reserved;
  MutexLock lock(mutex_);
  imports_[id] = reserved;
  return kAclOk;
}

AclError Sharing::import_piece(std::uint64_t id, std::int32_t device, void** handle) {
  constexpr const char* kName = "aclrtMemImportFromShareableHandle";
  if (!handle) return fail(kRtParamInvalid, "{}: null pointer for the answer", kName);
  if (const AclError code = runtime().check_device(device)) return code;
  const auto record = importable(id);
  if (!record.ok()) return fail(kRtParamInvalid, "{}: {}", kName, record.error().text());
  auto file = open_exported(*record);
  if (!file.ok()) return fail(kRtDriverInternal, "{}: {}", kName, file.error().text());
  auto piece = std::make_shared<PhysicalMemory>();
  piece->backing = std::make_shared<Backing>(std::move(*file), record->nbytes, -1);
  piece->device = record->physical_device >= 0 ? device : -1;
  piece->page_bytes = kAscendPageBytes;
  *handle = virtual_memory().pieces.add(std::move(piece));
  return kAclOk;
}

AclError Sharing::close(const char* key) {
  constexpr const char* kName = "aclrtIpcMemClose";
  const std::uint64_t id = id_of(key);
  void* imported = nullptr;
  bool exported = false;
  {
    MutexLock lock(mutex_);
    if (const auto at = imports_.find(id); at != imports_.end()) {
      imported = at->second;
      imports_.erase(at);
    } else {
      exported = exports_.erase(id) > 0;
    }
  }
  if (imported) {
    runtime().memory.remove(imported, MemoryKind::kImported);
    return kAclOk;
  }
  if (!exported) return fail(kRtParamInvalid, "{}: this process has neither exported nor imported such a key", kName);
  if (const auto ledger = Ledger::machine(); ledger.ok()) (*ledger)->withdraw(id);
  return kAclOk;
}

void Sharing::forget_exports_of(std::uint64_t base) {
  std::vector<std::uint64_t> ended;
  {
    MutexLock lock(mutex_);
    for (auto at = exports_.begin(); at != exports_.end();) {
      if (at->second == base) {
        ended.push_back(at->first);
        at = exports_.erase(at);
      } else {
        ++at;
      }
    }
  }
  if (ended.empty()) return;
  if (const auto ledger = Ledger::machine(); ledger.ok()) {
    for (const std::uint64_t id : ended) (*ledger)->withdraw(id);
  }
}

}  // namespace onesided::sim
