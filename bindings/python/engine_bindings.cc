// onesided.Engine for Python, with exactly the operations of the core; transfers and their requests are in
// transfer_bindings.cc. A call that can block or copy releases the GIL.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <map>

#include "engine_object.h"
#include "errors.h"
#include "interruptible.h"
#include "onesided/node/open_engine.h"
#include "transfer_items.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace onesided::python {
namespace {

struct Handle {
  MemHandle handle;
};

nb::dict stats_of(const PyEngine& self) {
  Engine::Stats stats;
  {
    const Unlocked unlocked;
    stats = unwrap(self.engine->stats());
  }
  nb::dict peers;
  for (const auto& [id, peer] : stats.peers) {
    nb::dict bytes, not_used;
    nb::list transports;
    for (const auto& [name, count] : peer.bytes) {
      transports.append(name);
      bytes[name.c_str()] = count;
    }
    for (const auto& [name, why] : peer.not_used) not_used[name.c_str()] = why;
    nb::dict entry;
    entry["transports"] = transports;
    entry["bytes"] = bytes;
    entry["not_used"] = not_used;
    entry["transfers"] = peer.transfers;
    peers[id.c_str()] = entry;
  }
  nb::dict all;
  all["id"] = stats.id;
  all["regions"] = stats.regions;
  all["connected_to_us"] = stats.guests;
  all["outstanding"] = stats.outstanding;
  all["worker_threads"] = stats.workers;
  nb::dict served;
  for (const auto& [name, settings] : stats.transports) served[name.c_str()] = settings;
  all["transports"] = served;
  all["peers"] = peers;
  return all;
}

nb::bytes describe(const PyEngine& self, nb::handle ranges) {
  const auto words = rows_of(ranges, 2, "addr, nbytes");
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs;
  for (std::size_t i = 0; i < words.size(); i += 2) pairs.emplace_back(words[i], words[i + 1]);
  const auto blob = unwrap(self.engine->describe(pairs));
  return nb::bytes(blob.data(), blob.size());
}

nb::list notifies_of(const PyEngine& self) {
  nb::list all;
  for (const auto& [name, message] : unwrap(self.engine->get_notifies())) {
    // Names are text here, but another program may have sent other bytes.
    const auto text =
        nb::steal(PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "surrogateescape"));
    if (!text.is_valid()) throw nb::python_error();
    all.append(nb::make_tuple(text, nb::bytes(message.data(), message.size())));
  }
  return all;
}

void send_notify(const PyEngine& self, const std::string& remote_id, nb::str name, nb::handle message,
                 TimeoutMs timeout_ms) {
  const auto encoded = nb::steal(PyUnicode_AsEncodedString(name.ptr(), "utf-8", "surrogateescape"));
  if (!encoded.is_valid()) throw nb::python_error();
  Py_buffer buffer;
  if (PyObject_GetBuffer(message.ptr(), &buffer, PyBUF_SIMPLE) != 0) {
    PyErr_Clear();
    raise_invalid("send_notify: the message must be bytes");
  }
  const std::string message_bytes(static_cast<const char*>(buffer.buf), static_cast<std::size_t>(buffer.len));
  PyBuffer_Release(&buffer);
  const std::string name_bytes(PyBytes_AsString(encoded.ptr()), static_cast<std::size_t>(PyBytes_Size(encoded.ptr())));
  unwrap(run_interruptibly(timeout_ms, [=, engine = self.engine] {
    return engine->send_notify(remote_id, name_bytes, message_bytes, timeout_ms);
  }));
}

void bind_values(nb::module_& module) {
  nb::enum_<MemType>(module, "MemType", "The kind of memory: host or device.")
      .value("HOST", MemType::kHost)
      .value("DEVICE", MemType::kDevice);
  nb::class_<Handle>(module, "MemHandle", "Registered memory, as register_mem() returned it.")
      .def(
          "__eq__", [](const Handle& a, const Handle& b) { return a.handle == b.handle; }, nb::is_operator())
      .def("__hash__", [](const Handle& a) { return std::hash<std::uint64_t>()(number_of(a.handle)); })
      .def("__repr__", [](const Handle& a) {
        return fmt::format("MemHandle({}.{})", a.handle.key.index, a.handle.key.generation);
      });
}

std::map<std::string, std::string> options_of(const std::optional<nb::dict>& given) {
  std::map<std::string, std::string> options;
  for (const auto& [name, value] : given.value_or(nb::dict())) {
    if (!nb::isinstance<nb::str>(name) || !nb::isinstance<nb::str>(value))
      raise_invalid(fmt::format("option {}: {}: names and values are strings, \"{}\"", nb::repr(name).c_str(),
                                nb::repr(value).c_str(), nb::str(value).c_str()));
    options[nb::cast<std::string>(name)] = nb::cast<std::string>(value);
  }
  return options;
}

void open(PyEngine* self, const std::string& local_engine, const std::optional<nb::dict>& given) {
  const auto options = options_of(given);
  std::unique_ptr<Engine> opened;
  {
    const Unlocked unlocked;
    opened = unwrap(open_engine(local_engine, options));
  }
  new (self) PyEngine(std::move(opened));
}

void bind_connections(EngineClass& engine) {
  engine
      .def(
          "connect",
          [](const PyEngine& self, const std::string& id, TimeoutMs ms) {
            unwrap(run_interruptibly(ms, [engine = self.engine, id, ms] { return engine->connect(id, ms); }));
          },
          "remote_id"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs,
          "Connects to the engine with that id. Errors: ALREADY_CONNECTED, TIMEOUT, NOT_CONNECTED (no engine listens "
          "there), AUTH_FAILED, UNSUPPORTED (no transport reaches it), NOT_FOUND (no such host).")
      .def(
          "disconnect", [](const PyEngine& self, const std::string& id) { unwrap(self.engine->disconnect(id)); },
          "remote_id"_a, nb::call_guard<Unlocked>(),
          "Ends unfinished transfers with CANCELLED and closes the connection; blocks until no byte can move. Error: "
          "NOT_CONNECTED.")
      .def(
          "connect_async",
          [](const PyEngine& self, const std::string& id, TimeoutMs ms) { unwrap(self.engine->connect_async(id, ms)); },
          "remote_id"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs, nb::call_guard<Unlocked>(),
          "Queues a connect. Operations for one remote run in order, those for different remotes concurrently; see "
          "get_async_connect_status(). "
          "RESOURCE_EXHAUSTED.")
      .def(
          "disconnect_async",
          [](const PyEngine& self, const std::string& id) { unwrap(self.engine->disconnect_async(id)); }, "remote_id"_a,
          nb::call_guard<Unlocked>(),
          "Queues a disconnect after the queued operations for that remote. Error: RESOURCE_EXHAUSTED.")
      .def(
          "get_async_connect_status",
          [](const PyEngine& self, const std::string& id) {
            return unwrap(self.engine->async_connect_outcome(id)).status;
          },
          "remote_id"_a, "The TransferStatus of the latest connect_async or disconnect_async of that remote.")
      .def(
          "get_async_connect_error",
          [](const PyEngine& self, const std::string& id) -> nb::object {
            const auto outcome = unwrap(self.engine->async_connect_outcome(id));
            return outcome.error ? make_engine_error(*outcome.error) : nb::none();
          },
          "remote_id"_a, "The error of the latest connect_async or disconnect_async as an EngineError, or None.")
      .def("send_notify", &send_notify, "remote_id"_a, "name"_a, "msg"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs,
           "Sends a named message (bytes) and blocks until the peer's engine has received it. Errors: NOTIFY_FAILED "
           "(its queue is full), TIMEOUT, NOT_CONNECTED, PEER_LOST, PARAM_INVALID (above "
           "get_capability(\"MAX_NOTIFY_BYTES\")).")
      .def("get_notifies", &notifies_of, "Received notifications as [(name, msg), ...], oldest first; does not block.");
}

void close(PyEngine& self) {
  {
    const Unlocked unlocked;
    self.engine->close();
  }
  self.objects.clear();
}

void close_open_engines() {
  const auto engines = open_engines();
  const Unlocked unlocked;
  for (const auto& held : engines)
    if (const auto engine = held.lock()) engine->close();
}

}  // namespace

OpenEngines& open_engines() {
  static auto* engines = new OpenEngines();
  return *engines;
}

void bind_engine(nb::module_& module) {
  bind_values(module);
  bind_transfer_values(module);
  EngineClass engine(module, "Engine", nb::is_weak_referenceable(),
                     "One engine: a listener, registered memory, connections. Thread-safe.");
  engine
      .def(
          "__init__", &open, "local_engine"_a = "127.0.0.1", "options"_a = nb::none(),
          "Listens on local_engine (\"ip\", \"ip:port\", \"[::1]:0\", \"host:port\"; port 0 or none: a free one) and "
          "on no other address. options: a dict of str; docs/engine.md lists them. Errors: ADDR_IN_USE, PARAM_INVALID.")
      .def_prop_ro(
          "id", [](const PyEngine& self) { return self.engine->id(); }, "The id that peers pass to connect().")
      .def(
          "register_mem",
          [](PyEngine& self, nb::handle addr, nb::handle nbytes, nb::handle type) {
            auto memory = MemoryArgument::from(addr, nbytes, type);
            MemHandle handle;
            {
              const Unlocked unlocked;
              handle = unwrap(self.engine->register_mem(memory.address, memory.nbytes, memory.type));
            }
            self.objects.keep(handle, std::move(memory.owner));
            return Handle{handle};
          },
          "addr"_a, "nbytes"_a = nb::none(), "mem_type"_a = nb::none(),
          "Allows peers to READ and WRITE [addr, addr + nbytes), and this engine's transfers to use it. The caller "
          "owns the memory and keeps it alive until deregister_mem() has returned. Instead of an address: a contiguous "
          "torch tensor, an array, a host_pool() buffer; the engine keeps that object alive. The same range again "
          "gives the same "
          "handle, "
          "counted; another overlap is PARAM_INVALID. mem_type: \"host\" (the default), \"device\" or a MemType; "
          "device "
          "memory of an Ascend NPU must lie on 2 MiB boundaries (MISALIGNED).")
      .def(
          "deregister_mem",
          [](PyEngine& self, const Handle& handle, TimeoutMs ms) {
            unwrap(run_interruptibly(
                ms, [engine = self.engine, handle = handle.handle, ms] { return engine->deregister_mem(handle, ms); }));
            self.objects.let_go(handle.handle);
          },
          "handle"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs,
          "Refuses new transfers of the region and blocks until no byte can move in or out of it. BUSY: the region is "
          "still in use after timeout_ms; it accepts no new transfers, and another call waits again. NOT_FOUND: no "
          "such handle.")
      .def("describe", &describe, "ranges"_a, "Encodes [(addr, nbytes), ...] as bytes that another engine can import.")
      .def(
          "import_desc",
          [](const PyEngine& self, nb::bytes blob) {
            return unwrap(self.engine->import_desc({static_cast<const std::uint8_t*>(blob.data()), blob.size()}));
          },
          "blob"_a, "Decodes the bytes of another engine's describe() as RemoteRegions. PARAM_INVALID: not such bytes.")
      .def(
          "get_capability",
          [](const PyEngine& self, std::string_view name) { return unwrap(self.engine->capability(name)); }, "name"_a,
          "The value of a capability: a switch (1 or 0) or a limit; docs/engine.md lists the names. PARAM_INVALID: "
          "unknown name.")
      .def("stats", &stats_of,
           "A dict: regions, unfinished transfers, and for each peer the transports in use with their bytes, and the "
           "reasons why others are not used.")
      .def("close", &close,
           "Ends all transfers and connections; blocks until no byte can move and no peer can connect. Idempotent.")
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](PyEngine& self, nb::args) { close(self); });
  bind_connections(engine);
  bind_transfers(engine);
  module.def("known_transports", [] {
    nb::list names;
    for (const auto& name : known_transports()) names.append(name);
    return names;
  });
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&close_open_engines));
}

}  // namespace onesided::python
