// Scopes that release or take the GIL. A thread may return from the core after the interpreter has begun to end.
// CPython before 3.14 then unwinds the stack of that thread, which the C++ frames do not support: the process aborts.
// These scopes block the thread instead, as CPython does from 3.14 on.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace onesided::python {

// Takes the GIL by `take`. Never returns on a thread that the ending interpreter refuses.
template <typename Take>
void take_lock(Take take) noexcept {
  try {
    take();
  } catch (const abi::__forced_unwind&) {
    while (true) ::pause();  // must not be left, because the unwinding would continue
  }
}

// Releases the GIL for a scope that blocks or copies. Confined to a thread that holds the GIL.
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

// Holds the GIL for a scope, on any thread, whether or not it holds the GIL already.
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
