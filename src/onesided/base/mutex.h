// Mutexes with annotations for clang's thread-safety analysis (-Wthread-safety); g++ ignores the annotations.
#pragma once

#include <condition_variable>
#include <mutex>

#include "onesided/base/clock.h"

#if defined(__clang__)
#define ONESIDED_TSA(x) __attribute__((x))
#else
#define ONESIDED_TSA(x)
#endif
#define ONESIDED_GUARDED_BY(m) ONESIDED_TSA(guarded_by(m))
#define ONESIDED_REQUIRES(...) ONESIDED_TSA(requires_capability(__VA_ARGS__))
#define ONESIDED_EXCLUDES(...) ONESIDED_TSA(locks_excluded(__VA_ARGS__))
#define ONESIDED_ACQUIRE(...) ONESIDED_TSA(acquire_capability(__VA_ARGS__))
#define ONESIDED_RELEASE(...) ONESIDED_TSA(release_capability(__VA_ARGS__))
#define ONESIDED_NO_TSA ONESIDED_TSA(no_thread_safety_analysis)

namespace onesided {

class ONESIDED_TSA(capability("mutex")) Mutex {
 public:
  void lock() ONESIDED_ACQUIRE() { mutex_.lock(); }
  void unlock() ONESIDED_RELEASE() { mutex_.unlock(); }
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

// Holds a Mutex for a scope; may be released early or temporarily.
class ONESIDED_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ONESIDED_ACQUIRE(mutex) : lock_(mutex.native()) {}
  ~MutexLock() ONESIDED_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void unlock() ONESIDED_RELEASE() { lock_.unlock(); }
  void lock() ONESIDED_ACQUIRE() { lock_.lock(); }
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Waiting is always written as `while (!condition) cv.wait(lock, deadline)`, so that the analysis sees the guard.
class CondVar {
 public:
  void notify_one() { cv_.notify_one(); }
  void notify_all() { cv_.notify_all(); }
  // False if the deadline passed. May wake spuriously.
  bool wait(MutexLock& lock, Deadline deadline = Deadline::never()) {
    if (deadline.is_never()) {
      cv_.wait(lock.native());
      return true;
    }
    return cv_.wait_until(lock.native(), deadline.at()) == std::cv_status::no_timeout;
  }

 private:
  std::condition_variable cv_;
};

}  // namespace onesided
