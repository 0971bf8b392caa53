// A thread may come back from the core when the interpreter has begun to end. CPython before 3.14 then ends that
// thread by unwinding its stack, which no C++ frame below expects: the process aborts. Ours sleeps instead, as CPython
// itself does from 3.14 on.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace onesided::python {

// Takes the interpreter lock by `take`; on a thread that the ending interpreter does not want back: never returns.
template <typename Take>
void take_lock(Take take) noexcept {
  try {
    take();
  } catch (const abi::__forced_unwind&) {
    while (true) ::pause();  // must not be left: the unwinding would go on
  }
}

// Lets go of the interpreter lock for a scope that waits or copies. Confined to a thread that holds the lock.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    take_lock([this] { PyEval_RestoreThread(state_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

// Holds the interpreter lock for a scope, on any thread, whether or not it holds the lock already.
class Locked {
 public:
  Locked() {
    take_lock([this] { state_ = PyGILState_Ensure(); });
  }
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_{};
};

}  // namespace onesided::python
