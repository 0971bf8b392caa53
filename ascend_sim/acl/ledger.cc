#include "ascend_sim/acl/ledger.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "ascend_sim/acl/fork.h"
#include "ascend_sim/acl/ledger_door.h"
#include "onesided/base/mutex.h"

namespace onesided::sim {
namespace {

constexpr std::uint64_t kMagic = 0x6f6e65736964'0001;  // layout version in the low bits
constexpr std::size_t kMaxProcesses = 1024;
constexpr std::size_t kMaxExports = 4096;

// State letter and start time of /proc/<pid>/stat; false when there is no such process.
bool read_stat(int pid, char* state, std::uint64_t* start_time) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return false;
  const auto name_end = text.rfind(')');  // the name may hold anything, also ')'
  if (name_end == std::string::npos) return false;
  std::istringstream fields(text.substr(name_end + 1));
  fields >> *state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  return static_cast<bool>(fields >> *start_time);
}

}  // namespace

ProcessId ProcessId::self() {
  ProcessId id{::getpid(), 0};
  char state = 0;
  read_stat(id.pid, &state, &id.start_time);
  return id;
}

bool ProcessId::alive() const {
  char state = 0;
  std::uint64_t started = 0;
  // A zombie has given its memory back already.
  return read_stat(pid, &state, &started) && started == start_time && state != 'Z' && state != 'X';
}

// The shared pages. Plain words under one robust mutex: a process killed inside leaves at most its own numbers odd, and
// those are forgotten with it.
struct Ledger::Books {
  struct Slot {
    ProcessId process;
    std::uint64_t used[kMaxDevices];
  };
  std::uint64_t magic;
  pthread_mutex_t mutex;
  std::uint64_t slot_count;    // slots ever used; those behind have never been touched
  std::uint64_t export_count;  // the same for exports
  Slot slots[kMaxProcesses];
  ExportRecord exports[kMaxExports];
};

class Ledger::BooksLock {
 public:
  explicit BooksLock(Books* books) : books_(books) {
    if (::pthread_mutex_lock(&books_->mutex) == EOWNERDEAD) ::pthread_mutex_consistent(&books_->mutex);
  }
  ~BooksLock() { ::pthread_mutex_unlock(&books_->mutex); }
  BooksLock(const BooksLock&) = delete;
  BooksLock& operator=(const BooksLock&) = delete;

 private:
  Books* books_;
};

Ledger::Ledger(Books* books, Fd file, Fd name) : books_(books), file_(std::move(file)), name_(std::move(name)) {}

Result<Ledger*> Ledger::machine() {
  static Mutex mutex;
  static Ledger* joined = nullptr;
  MutexLock lock(mutex);
  if (!joined) {
    ONESIDED_TRY_ASSIGN(made, join());
    joined = made;
    mark_used();
  }
  return joined;
}

Result<Ledger*> Ledger::join() {
  const auto system_error = [](const char* what) {
    return Error{Status::kFailed, fmt::format("the simulated machine's books: {}: {}", what, std::strerror(errno))};
  };
  const std::string& machine_name = Config::active()->machine;
  ONESIDED_TRY_ASSIGN(door, lock_ledger_door(machine_name));
  ONESIDED_TRY_ASSIGN(living, open_living_ledgers(machine_name));
  const auto map = [](int fd) {
    void* mapped = ::mmap(nullptr, sizeof(Books), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? nullptr : static_cast<Books*>(mapped);
  };
  for (Fd& file : living) {
    struct stat size{};
    if (::fstat(file.get(), &size) != 0 || size.st_size != sizeof(Books)) continue;  // another version of this library
    Books* books = map(file.get());
    if (!books) return system_error("mmap");
    if (books->magic == kMagic) {
      ONESIDED_TRY_ASSIGN(name, announce_ledger(machine_name, file.get()));
      return new Ledger(books, std::move(file), std::move(name));
    }
    ::munmap(books, sizeof(Books));
  }
  Fd file(::memfd_create(kLedgerFileName, MFD_CLOEXEC));
  if (!file.valid()) return system_error("memfd_create");
  if (::ftruncate(file.get(), sizeof(Books)) != 0) return system_error("ftruncate");
  Books* books = map(file.get());
  if (!books) return system_error("mmap");
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&books->mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  books->magic = kMagic;
  ONESIDED_TRY_ASSIGN(name, announce_ledger(machine_name, file.get()));
  return new Ledger(books, std::move(file), std::move(name));
}

void Ledger::sweep() {
  for (std::uint64_t i = 0; i < books_->slot_count; ++i) {
    Books::Slot& slot = books_->slots[i];
    if (slot.process.pid != 0 && slot.process != self_ && !slot.process.alive()) slot = Books::Slot{};
  }
  for (std::uint64_t i = 0; i < books_->export_count; ++i) {
    ExportRecord& record = books_->exports[i];
    if (record.id != 0 && record.owner != self_ && !record.owner.alive()) record = ExportRecord{};
  }
}

std::uint64_t Ledger::sum(int device) const {
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < books_->slot_count; ++i) total += books_->slots[i].used[device];
  return total;
}

Result<int> Ledger::own_slot() {
  if (slot_ >= 0) return slot_;
  for (int round = 0; round < 2; ++round) {
    const std::uint64_t end = std::min<std::uint64_t>(books_->slot_count + 1, kMaxProcesses);
    for (std::uint64_t i = 0; i < end; ++i) {
      if (books_->slots[i].process.pid != 0) continue;
      books_->slots[i].process = self_;
      books_->slot_count = std::max(books_->slot_count, i + 1);
      slot_ = static_cast<int>(i);
      return slot_;
    }
    sweep();
  }
  return Error{Status::kResourceExhausted,
               fmt::format("more than {} processes use the simulated machine", kMaxProcesses)};
}

Result<void> Ledger::charge(int device, std::uint64_t nbytes, std::uint64_t capacity) {
  BooksLock lock(books_);
  ONESIDED_TRY_ASSIGN(slot, own_slot());
  const auto fits = [&] { return nbytes <= capacity && sum(device) <= capacity - nbytes; };
  if (!fits()) {
    sweep();
    if (!fits()) {
      return Error{Status::kResourceExhausted,
                   fmt::format("device {} has {} of {} bytes in use over all processes ({} by this one), {} more asked",
                               device, sum(device), capacity, books_->slots[slot].used[device], nbytes)};
    }
  }
  books_->slots[slot].used[device] += nbytes;
  return {};
}

void Ledger::refund(int device, std::uint64_t nbytes) {
  BooksLock lock(books_);
  std::uint64_t& used = books_->slots[slot_].used[device];
  ONESIDED_CHECK(used >= nbytes, "refund of {} bytes on device {} that has {} booked", nbytes, device, used);
  used -= nbytes;
}

std::uint64_t Ledger::used(int device) {
  BooksLock lock(books_);
  sweep();
  return sum(device);
}

Result<std::uint64_t> Ledger::publish(ExportRecord record) {
  // Random, so that a key cannot be guessed from another and never repeats.
  do {
    if (::getrandom(&record.id, sizeof(record.id), 0) != sizeof(record.id)) {
      return Error{Status::kFailed, fmt::format("getrandom: {}", std::strerror(errno))};
    }
  } while (record.id == 0);
  record.owner = self_;
  BooksLock lock(books_);
  for (int round = 0; round < 2; ++round) {
    ExportRecord* free_slot = find(0);
    if (!free_slot && books_->export_count < kMaxExports) free_slot = &books_->exports[books_->export_count++];
    if (free_slot) {
      *free_slot = record;
      return record.id;
    }
    sweep();
  }
  return Error{Status::kResourceExhausted,
               fmt::format("more than {} memory keys are exported on this machine", kMaxExports)};
}

ExportRecord* Ledger::find(std::uint64_t id) {
  for (std::uint64_t i = 0; i < books_->export_count; ++i) {
    if (books_->exports[i].id == id) return &books_->exports[i];
  }
  return nullptr;
}

void Ledger::withdraw(std::uint64_t id) {
  BooksLock lock(books_);
  if (ExportRecord* record = id ? find(id) : nullptr) *record = ExportRecord{};
}

Result<ExportRecord> Ledger::look_up(std::uint64_t id) {
  BooksLock lock(books_);
  ExportRecord* record = id ? find(id) : nullptr;
  if (!record || !record->owner.alive()) {
    return Error{Status::kNotFound, "no living process exports memory under this key"};
  }
  return *record;
}

Result<void> Ledger::allow(std::uint64_t id, const std::int32_t* pids, std::size_t count) {
  BooksLock lock(books_);
  ExportRecord* record = id ? find(id) : nullptr;
  if (!record) return Error{Status::kNotFound, "no memory is exported under this key"};
  if (count > ExportRecord::kMaxPids - record->pid_count) {
    return Error{Status::kResourceExhausted,
                 fmt::format("a key can name at most {} processes", ExportRecord::kMaxPids)};
  }
  std::copy_n(pids, count, record->pids.begin() + record->pid_count);
  record->pid_count += static_cast<std::uint32_t>(count);
  return {};
}

}  // namespace onesided::sim
