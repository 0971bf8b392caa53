// onesided.Engine as a Python object, for the bindings that use an engine and must keep it alive.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <set>
#include <utility>

#include "interpreter_lock.h"
#include "memory_argument.h"
#include "onesided/node/open_engine.h"

namespace onesided::python {

// Engines that are open when the interpreter ends are closed before its threads and static objects end. Requires the
// GIL.
using OpenEngines = std::set<std::weak_ptr<Engine>, std::owner_less<>>;
OpenEngines& open_engines();

// An engine owned by Python. Other objects may hold it longer; after close() they get CLOSED.
struct PyEngine {
  explicit PyEngine(std::unique_ptr<Engine> opened) : engine(std::move(opened)) { open_engines().insert(engine); }
  ~PyEngine() {
    open_engines().erase(engine);
    const Unlocked unlocked;
    engine->close();
    engine.reset();
  }
  std::shared_ptr<Engine> engine;
  RegisteredObjects objects;
};

using EngineClass = nanobind::class_<PyEngine>;
// Binds transfer statuses, requests and descriptors. Call it before the engine's methods are bound.
void bind_transfer_values(nanobind::module_& module);
void bind_prepared_list(nanobind::module_& module);
// The methods of the engine that prepare lists and move ranges by index.
void bind_prepared(EngineClass& engine);
// Binds the engine's methods that move bytes.
void bind_transfers(EngineClass& engine);

}  // namespace onesided::python
