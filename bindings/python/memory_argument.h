// What is registered is an address, or an object whose memory it is. An object is kept alive while it is
// registered: a temporary tensor must not be gone before the line ends.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "onesided/engine/engine.h"

namespace onesided::python {

// Memory to register. A value; under the interpreter lock.
struct MemoryArgument {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  MemType type = MemType::kHost;
  nanobind::object owner;  // none: the caller sees to it

  // (addr, nbytes, type), or an object alone: a torch tensor, something with `addr` and `nbytes`, or with the buffer
  // protocol. Raises EngineError PARAM_INVALID.
  static MemoryArgument from(nanobind::handle memory, nanobind::handle nbytes, nanobind::handle type);
};

// Tells the registrations of one engine apart.
inline std::uint64_t number_of(const MemHandle& handle) {
  return std::uint64_t{handle.key.index} << 32 | handle.key.generation;
}

// The objects whose memory an engine has registered. Under the interpreter lock.
class RegisteredObjects {
 public:
  // Once for each register_mem() with an owner.
  void keep(const MemHandle& handle, nanobind::object owner);
  // Once for each deregister_mem() that succeeded: lets the last one kept under that handle go.
  void let_go(const MemHandle& handle);
  // All, when nothing is registered any more.
  void clear() { std::exchange(owners_, {}).clear(); }

 private:
  std::map<std::uint64_t, std::vector<nanobind::object>> owners_;
};

}  // namespace onesided::python
