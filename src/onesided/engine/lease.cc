#include "onesided/engine/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "onesided/base/futex.h"
#include "onesided/engine/shared_protocol.h"

namespace onesided {
namespace {

// How often the owner checks whether a process without a session has ended, while it waits for one of its leases.
constexpr std::int64_t kLookMs = 20;

std::uint64_t packed(RegionKey key) { return std::uint64_t{key.index} << 32 | key.generation; }

}  // namespace

Result<std::unique_ptr<LeasePage>> LeasePage::create() {
  Fd file(::memfd_create("onesided-leases", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid() || ::ftruncate(file.get(), kBytes) != 0)
    return Error(Status::kResourceExhausted, fmt::format("cannot create a page of leases: {}", std::strerror(errno)));
  // Sealed, because a peer that shrinks the file would crash the owner.
  ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return map(std::move(file), kBytes);
}

Result<std::unique_ptr<LeasePage>> LeasePage::map(Fd file, std::uint64_t nbytes) {
  struct stat info{};
  if (nbytes != kBytes || ::fstat(file.get(), &info) != 0 || info.st_size != static_cast<off_t>(kBytes))
    return Error(Status::kParamInvalid, fmt::format("the page of leases has {} bytes, expected {}", nbytes, kBytes));
  void* base = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED)
    return Error(Status::kResourceExhausted, fmt::format("cannot map a page of leases: {}", std::strerror(errno)));
  return std::unique_ptr<LeasePage>(new LeasePage(base, std::move(file)));
}

LeasePage::~LeasePage() { ::munmap(base_, kBytes); }

std::size_t LeasePage::take(RegionKey key) {
  static thread_local std::size_t hint = 0;
  auto& cells = page().cells;
  while (true) {
    for (std::size_t tries = 0; tries < kCells; ++tries) {
      const std::size_t cell = hint++ % kCells;
      if (take_cell(cells[cell], packed(key))) {
        --hint;
        return cell;
      }
    }
    // More than kCells threads of this process are copying a piece; one of them ends within a millisecond.
    ::sched_yield();
  }
}

void LeasePage::give_back(std::size_t cell) {
  if (give_cell_back(page().cells[cell], page().waiters)) wake();
}

void LeasePage::wake() {
  page().releases.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(page().releases, FutexScope::kShared);
}

bool LeasePage::holds(RegionKey key) const {
  for (const auto& cell : page().cells)
    if (cell_names(cell, packed(key))) return true;
  return false;
}

void LeasePage::revoke() {
  page().revoked.store(1, std::memory_order_seq_cst);
  wake();
}

bool LeasePage::idle() const {
  for (const auto& cell : page().cells)
    if (cell.load(std::memory_order_seq_cst) != 0) return false;
  return true;
}

bool LeasePage::wait_clear(RegionKey key, const std::function<bool()>& dead, Deadline deadline) {
  // Announced before the first check, so that a lease released after the check wakes this thread.
  //   owner:  waiters = 1 | look at cells    | sleep
  //   writer:               clear the cell   | look at waiters
  // The peer may write any values into this page; the worst result is a deregister_mem that runs into its timeout.
  page().waiters.fetch_add(1, std::memory_order_seq_cst);
  bool clear = false;
  while (true) {
    const std::uint32_t seen = page().releases.load(std::memory_order_seq_cst);
    clear = !holds(key) || dead();
    if (clear || deadline.passed()) break;
    const auto until = revoked() ? std::min(deadline, Deadline::after_ms(kLookMs)) : deadline;
    futex_wait(page().releases, seen, until, FutexScope::kShared);
  }
  page().waiters.fetch_sub(1, std::memory_order_seq_cst);
  return clear;
}

}  // namespace onesided
