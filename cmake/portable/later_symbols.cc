// What g++ 12 makes a program ask of the C++ and C libraries of 2022, for systems that have those of 2018 (glibc 2.28,
// libstdc++ of gcc 8). Linked into every library of the wheel, hidden, so that each one uses its own.
//
// The list is short because the linker makes it: it sees glibc 2.28's symbols only (cmake/PortableLinks.cmake), and
// `./do wheel` reads the symbol versions of every library that it packs.
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <new>
#include <sstream>
#include <string>

#pragma GCC visibility push(hidden)

namespace {

constexpr long kNanosecondsPerSecond = 1'000'000'000;

timespec minus(const timespec& a, const timespec& b) {
  timespec difference{a.tv_sec - b.tv_sec, a.tv_nsec - b.tv_nsec};
  if (difference.tv_nsec < 0) {
    difference.tv_nsec += kNanosecondsPerSecond;
    --difference.tv_sec;
  }
  return difference;
}

timespec plus(const timespec& a, const timespec& b) {
  timespec sum{a.tv_sec + b.tv_sec, a.tv_nsec + b.tv_nsec};
  if (sum.tv_nsec >= kNanosecondsPerSecond) {
    sum.tv_nsec -= kNanosecondsPerSecond;
    ++sum.tv_sec;
  }
  return sum;
}

// For glibc before 2.30: waits on the clock of the condition variable, CLOCK_REALTIME, in slices of a second at most. A
// step of the date can so delay the end of a wait by one slice and no more.
int wait_in_slices(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  timespec now{};
  clock_gettime(clock, &now);
  timespec left = minus(*until, now);
  if (left.tv_sec < 0) return ETIMEDOUT;
  const bool last = left.tv_sec == 0;
  if (!last) left = {1, 0};
  timespec date{};
  clock_gettime(CLOCK_REALTIME, &date);
  const timespec end = plus(date, left);
  const int result = pthread_cond_timedwait(condition, mutex, &end);
  if (result != ETIMEDOUT) return result;
  clock_gettime(clock, &now);
  return minus(*until, now).tv_sec < 0 ? ETIMEDOUT : 0;  // 0: a spurious wake-up, which every caller expects
}

}  // namespace

extern "C" {

// glibc 2.32. Says "one thread only"; "no" is always right and costs an atomic operation.
char __libc_single_threaded = 0;  // NOLINT(bugprone-reserved-identifier)

// glibc 2.30. The library's own where it has one.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto own = reinterpret_cast<Wait>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  return own != nullptr ? own(condition, mutex, clock, until) : wait_in_slices(condition, mutex, clock, until);
}

// What libstdc++ has had under these names since gcc 4.6. By name, because the headers of gcc 12 inline both.
void old_exception_ptr_copy(void* to, const void* from) asm("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void old_exception_ptr_destroy(void* pointer) asm("_ZNSt15__exception_ptr13exception_ptrD1Ev");

// gcc 12: one more, one fewer owner of the exception that `self` points to. An exception_ptr is one pointer.
void exception_ptr_add_reference(void** self) noexcept asm("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void exception_ptr_add_reference(void** self) noexcept {
  void* copy = nullptr;
  old_exception_ptr_copy(&copy, self);  // `copy` is never destroyed: its reference is the added one
}
void exception_ptr_release(void** self) noexcept asm("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void exception_ptr_release(void** self) noexcept {
  void* const exception = *self;
  if (exception == nullptr) return;
  void* last = exception;
  old_exception_ptr_destroy(&last);
  *self = nullptr;
}

// gcc 11: std::future::wait_for. False: the time is over. Not FUTEX_PRIVATE, because libstdc++ does not wake so.
bool futex_wait_until_steady(void* self, unsigned* address, unsigned expected, bool has_timeout, std::chrono::seconds seconds, std::chrono::nanoseconds nanoseconds) asm(
    "_ZNSt28__atomic_futex_unsigned_base26_M_futex_wait_until_steadyEPjjbNSt6chrono8durationIlSt5ratioILl1ELl1EEEENS2_"
    "IlS3_ILl1ELl1000000000EEEE");
bool futex_wait_until_steady(void* /*self*/, unsigned* address, unsigned expected, bool has_timeout,
                             std::chrono::seconds seconds, std::chrono::nanoseconds nanoseconds) {
  const timespec until{seconds.count(), nanoseconds.count()};
  const long result = syscall(SYS_futex, address, FUTEX_WAIT_BITSET, expected, has_timeout ? &until : nullptr, nullptr,
                              FUTEX_BITSET_MATCH_ANY);  // without FUTEX_CLOCK_REALTIME: the steady clock
  return result == 0 || errno != ETIMEDOUT;
}

}  // extern "C"

// gcc 11 has two, for buffers that are kept and that are moved from; this is the one of all buffers before.
std::string old_stringbuf_str(const std::stringbuf* self) asm(
    "_ZNKSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string stringbuf_str(const std::stringbuf* self) asm(
    "_ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string stringbuf_str(const std::stringbuf* self) { return old_stringbuf_str(self); }

// gcc 12 gave it a new version because it no longer throws.
void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) noexcept {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}

// gcc 11. Without exceptions' own text: bad_array_new_length has one.
void std::__throw_bad_array_new_length() { throw std::bad_array_new_length(); }

#pragma GCC visibility pop
