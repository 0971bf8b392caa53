#include "onesided/base/mappings.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "onesided/base/align.h"
#include "onesided/base/fd.h"

namespace onesided {
namespace {

// PROCMAP_QUERY of <linux/fs.h>, which is missing in older headers.
struct MapQuery {
  std::uint64_t size = sizeof(MapQuery), query_flags = 0, query_address = 0;
  std::uint64_t start = 0, end = 0, flags = 0, page_bytes = 0, offset = 0, inode = 0;
  std::uint32_t device_major = 0, device_minor = 0, name_bytes = 0, build_id_bytes = 0;
  std::uint64_t name = 0, build_id = 0;
};
constexpr auto kAskMap = _IOWR('f', 17, MapQuery);
constexpr std::uint64_t kWritable = 2;

// std::nullopt: this kernel does not have the query.
std::optional<bool> ask_is_writable(int maps, std::uint64_t address, std::uint64_t end) {
  for (MapQuery query; address < end; address = query.end) {
    query = MapQuery();
    query.query_address = address;
    if (::ioctl(maps, kAskMap, &query) != 0) return errno == ENOENT ? std::optional(false) : std::nullopt;
    if ((query.flags & kWritable) == 0) return false;
  }
  return true;
}

bool read_is_writable(std::uint64_t address, std::uint64_t end) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"), &std::fclose);
  if (!maps) return true;  // unknown without /proc; the kernel still checks the copies that it does itself
  char line[512];
  for (bool begins = true; address < end && std::fgets(line, sizeof line, maps.get());) {
    const bool whole = std::strchr(line, '\n') != nullptr;
    unsigned long long low = 0, high = 0;
    char may_read = 0, may_write = 0;
    const bool parsed = begins && std::sscanf(line, "%llx-%llx %c%c", &low, &high, &may_read, &may_write) == 4;
    begins = whole;
    if (!parsed || high <= address) continue;
    if (low > address || may_write != 'w') return false;
    address = high;
  }
  return address >= end;
}

}  // namespace

bool is_mapped(std::uint64_t address, std::uint64_t nbytes) {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t start = align_down(address, page);
  const auto end = align_up(address + nbytes, page);
  return end && (::msync(reinterpret_cast<void*>(start), *end - start, MS_ASYNC) == 0 || errno == EBUSY);
}

bool is_writable(std::uint64_t address, std::uint64_t nbytes) {
  const std::uint64_t end = address + nbytes;
  const Fd maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (const auto answer = ask_is_writable(maps.get(), address, end)) return *answer;
  return read_is_writable(address, end);
}

bool copy_unless_it_faults(void* to, const void* from, std::uint64_t nbytes) {
  iovec source{const_cast<void*>(from), nbytes}, target{to, nbytes};
  const auto copied = ::process_vm_writev(::getpid(), &source, 1, &target, 1, 0);
  if (copied >= 0) return static_cast<std::uint64_t>(copied) == nbytes;
  if (errno == EFAULT) return false;
  // A sandbox forbids the call.
  std::memcpy(to, from, nbytes);
  return true;
}

}  // namespace onesided
