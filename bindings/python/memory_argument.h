// The memory argument of register_mem: an address, or an object that owns the memory. An object is kept alive while it
// is registered; otherwise the memory of a temporary tensor would be freed at the end of the statement.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "onesided/engine/engine.h"

namespace onesided::python {

// Memory to register. A value; requires the GIL.
struct MemoryArgument {
  std::uint64_t address = 0;
  std::uint64_t nbytes = 0;
  MemType type = MemType::kHost;
  nanobind::object owner;  // none: the caller keeps the memory alive

  // (addr, nbytes, type), or an object alone: a torch tensor, something with `addr` and `nbytes`, or with the buffer
  // protocol. Raises EngineError PARAM_INVALID.
  static MemoryArgument from(nanobind::handle memory, nanobind::handle nbytes, nanobind::handle type);
};

// A number that identifies a registration of one engine.
inline std::uint64_t number_of(const MemHandle& handle) {
  return std::uint64_t{handle.key.index} << 32 | handle.key.generation;
}

// The objects whose memory an engine has registered. Requires the GIL.
class RegisteredObjects {
 public:
  // Called once for each register_mem() with an owner.
  void keep(const MemHandle& handle, nanobind::object owner);
  // Called once for each successful deregister_mem(): releases the owner that was kept last under that handle.
  void let_go(const MemHandle& handle);
  // Releases all owners, when nothing is registered any more.
  void clear() { std::exchange(owners_, {}).clear(); }

 private:
  std::map<std::uint64_t, std::vector<nanobind::object>> owners_;
};

}  // namespace onesided::python
