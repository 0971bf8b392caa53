// Why: onesided.Engine and its requests for Python, exactly the verbs of the core. The interpreter lock is released
// wherever a call can wait or copy.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <chrono>
#include <future>
#include <map>
#include <thread>

#include "engine_object.h"
#include "errors.h"
#include "interpreter_lock.h"
#include "onesided/node/open_engine.h"
#include "transfer_items.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace onesided::python {
namespace {

using TimeoutMs = Engine::TimeoutMs;

// A request: a transfer, and whose it is.
struct Request {
  std::shared_ptr<Transfer> transfer;
  std::weak_ptr<Engine> engine;  // compared, never used
};

struct Handle {
  MemHandle handle;
};

Op op_of(std::string_view name) {
  if (name == "READ") return Op::kRead;
  if (name == "WRITE") return Op::kWrite;
  throw RaisedError(Error(Status::kParamInvalid, fmt::format("op \"{}\": expected \"READ\" or \"WRITE\"", name)));
}

MemType type_of(nb::handle type) {
  if (MemType value{}; nb::try_cast(type, value)) return value;
  if (std::string name; nb::try_cast(type, name)) {
    if (name == "host") return MemType::kHost;
    if (name == "device") return MemType::kDevice;
    throw RaisedError(
        Error(Status::kParamInvalid, fmt::format("memory type \"{}\": expected \"host\" or \"device\"", name)));
  }
  throw RaisedError(Error(Status::kParamInvalid, "the memory type must be \"host\", \"device\" or a MemType"));
}

std::uint64_t word_of(nb::handle value, const char* what) {
  std::uint64_t word = 0;
  if (nb::try_cast(value, word)) return word;
  const auto index = nb::steal(PyNumber_Index(value.ptr()));
  PyErr_Clear();
  if (index.is_valid() && nb::try_cast(index, word)) return word;
  throw RaisedError(Error(Status::kParamInvalid, fmt::format("{} must be an integer from 0 to 2^64 - 1", what)));
}

nb::object status_or_raise(const Request& request, const std::shared_ptr<Engine>& engine) {
  if (request.engine.owner_before(engine) || engine.owner_before(request.engine))
    throw RaisedError(Error(Status::kNotFound, "the request belongs to another engine"));
  return nb::cast(request.transfer->status());
}

nb::object statuses(const PyEngine& self, nb::handle requests) {
  if (const Request* one = nullptr; nb::try_cast(requests, one) && one) return status_or_raise(*one, self.engine);
  nb::list all;
  if (PySequence_Check(requests.ptr()) != 0) {
    for (nb::handle entry : requests) {
      const Request* one = nullptr;
      if (!nb::try_cast(entry, one) || !one)
        throw RaisedError(Error(Status::kNotFound, "the list holds something that is no request"));
      all.append(status_or_raise(*one, self.engine));
    }
    return all;
  }
  throw RaisedError(
      Error(Status::kNotFound, "not a request of this engine; expected what transfer_async returned, or a list of it"));
}

constexpr std::int64_t kSignalsMs = 200;  // so often a long wait looks for Ctrl-C

bool is_long(const TimeoutMs& timeout_ms) { return !timeout_ms || *timeout_ms > Engine::kDefaultTimeoutMs; }

// Runs a call of the engine. One that may take long goes to a thread of its own, so that Ctrl-C ends the wait; the call
// itself goes on then, to its own limit.
template <typename Call>
auto run_interruptibly(const TimeoutMs& timeout_ms, Call call) {
  if (!is_long(timeout_ms)) {
    const Unlocked unlocked;
    return call();
  }
  std::packaged_task<decltype(call())()> task(std::move(call));
  auto outcome = task.get_future();
  std::thread(std::move(task)).detach();
  while (true) {
    {
      const Unlocked unlocked;
      if (outcome.wait_for(std::chrono::milliseconds(kSignalsMs)) == std::future_status::ready) return outcome.get();
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

TransferStatus wait_for(const Request& request, TimeoutMs timeout_ms) {
  const auto deadline = Deadline::after_ms(timeout_ms);
  while (true) {
    const auto slice = std::min(deadline, Deadline::after_ms(kSignalsMs));
    {
      const Unlocked unlocked;
      if (const auto status = request.transfer->wait(slice); status.ok()) return *status;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!deadline.passed()) continue;
    const auto text =
        fmt::format("the transfer is still under way after {} ms ({} of {} bytes)", timeout_ms.value_or(0),
                    request.transfer->bytes_done(), request.transfer->bytes_total());
    PyErr_SetString(PyExc_TimeoutError, text.c_str());
    throw nb::python_error();
  }
}

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

BoundItems bind_pairs(const RemoteRegions& regions, nb::handle pairs) {
  const auto words = rows_of(pairs, 4, "local_addr, item, offset, nbytes");
  BoundItems bound;
  bound.instance = regions.instance();
  for (std::size_t i = 0; i < words.size(); i += 4)
    unwrap(regions.bind({words[i], words[i + 1], words[i + 2], words[i + 3]}, bound));
  return bound;
}

nb::list notifies_of(const PyEngine& self) {
  nb::list all;
  for (const auto& [name, message] : unwrap(self.engine->get_notifies())) {
    // A name is text for us; what another program sent may not be.
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
    throw RaisedError(Error(Status::kParamInvalid, "send_notify: the message must be bytes"));
  }
  const std::string message_bytes(static_cast<const char*>(buffer.buf), static_cast<std::size_t>(buffer.len));
  PyBuffer_Release(&buffer);
  const std::string name_bytes(PyBytes_AS_STRING(encoded.ptr()),
                               static_cast<std::size_t>(PyBytes_GET_SIZE(encoded.ptr())));
  unwrap(run_interruptibly(timeout_ms, [=, engine = self.engine] {
    return engine->send_notify(remote_id, name_bytes, message_bytes, timeout_ms);
  }));
}

void bind_values(nb::module_& module) {
  nb::enum_<MemType>(module, "MemType", "Where memory lives.")
      .value("HOST", MemType::kHost)
      .value("DEVICE", MemType::kDevice);
  nb::enum_<TransferStatus>(module, "TransferStatus", nb::is_arithmetic(), "The four statuses of a request.")
      .value("WAITING", TransferStatus::kWaiting)
      .value("COMPLETED", TransferStatus::kCompleted)
      .value("TIMEOUT", TransferStatus::kTimeout)
      .value("FAILED", TransferStatus::kFailed);
  nb::class_<Handle>(module, "MemHandle", "Registered memory, as register_mem() returned it.")
      .def(
          "__eq__", [](const Handle& a, const Handle& b) { return a.handle == b.handle; }, nb::is_operator())
      .def("__hash__",
           [](const Handle& a) {
             return std::hash<std::uint64_t>()(std::uint64_t{a.handle.key.index} << 32 | a.handle.key.generation);
           })
      .def("__repr__", [](const Handle& a) {
        return fmt::format("MemHandle({}.{})", a.handle.key.index, a.handle.key.generation);
      });
  nb::class_<ItemResult>(module, "ItemResult", "What became of one item of a request.")
      .def_ro("status", &ItemResult::status)
      .def_ro("bytes_done", &ItemResult::bytes_done)
      .def("__repr__", [](const ItemResult& r) {
        return fmt::format("ItemResult({}, {} bytes)", status_name(r.status), r.bytes_done);
      });
  nb::class_<BoundItems>(module, "BoundItems",
                         "Items for one transfer, bound to the registrations they were described from.")
      .def("__len__", [](const BoundItems& bound) { return bound.items.size(); });
  nb::class_<RemoteRegions>(module, "RemoteRegions", "What another engine described.")
      .def_prop_ro("engine_id", &RemoteRegions::engine_id)
      .def("__len__", [](const RemoteRegions& regions) { return regions.items().size(); })
      .def("__getitem__",
           [](const RemoteRegions& regions, std::size_t item) {
             if (item >= regions.items().size()) throw nb::index_error();
             return nb::make_tuple(regions.items()[item].address, regions.items()[item].nbytes);
           })
      .def("pairs", &bind_pairs, "pairs"_a,
           "[(local_addr, item, offset, nbytes), ...] for transfer_sync() and transfer_async().");
}

void bind_request(nb::module_& module) {
  nb::class_<Request>(module, "Request", "A transfer that was submitted. Its status becomes final exactly once.")
      .def("status", [](const Request& self) { return self.transfer->status(); })
      .def("wait", &wait_for, "timeout_ms"_a = nb::none(),
           "Blocks until the status is final and returns it. Raises TimeoutError when timeout_ms pass first; the "
           "transfer goes on.")
      .def(
          "cancel", [](const Request& self) { self.transfer->cancel(); }, nb::call_guard<Unlocked>(),
          "Ends it early; returns when nothing moves any more. No-op on a finished request.")
      .def_prop_ro(
          "error",
          [](const Request& self) -> nb::object {
            const auto error = self.transfer->error();
            return error ? make_engine_error(*error) : nb::none();
          },
          "The first cause as an EngineError (.status, .text), or None.")
      .def_prop_ro("bytes_done", [](const Request& self) { return self.transfer->bytes_done(); })
      .def_prop_ro("items",
                   [](const Request& self) {
                     nb::list all;
                     for (const auto& item : self.transfer->items()) all.append(nb::cast(item));
                     return all;
                   })
      .def("__repr__", [](const Request& self) {
        return fmt::format("Request({}, {} of {} bytes)", transfer_status_name(self.transfer->status()),
                           self.transfer->bytes_done(), self.transfer->bytes_total());
      });
}

std::map<std::string, std::string> options_of(const std::optional<nb::dict>& given) {
  std::map<std::string, std::string> options;
  for (const auto& [name, value] : given.value_or(nb::dict())) {
    if (!nb::isinstance<nb::str>(name) || !nb::isinstance<nb::str>(value))
      throw RaisedError(Error(Status::kParamInvalid,
                              fmt::format("option {}: {}: names and values are strings, \"{}\"", nb::repr(name).c_str(),
                                          nb::repr(value).c_str(), nb::str(value).c_str())));
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

void transfer_sync(const PyEngine& self, std::string_view id, std::string_view op, nb::handle descs, TimeoutMs ms) {
  const ItemsArgument items(descs);
  const Op which = op_of(op);
  const Engine::GiveUp interrupted = [] {
    const Locked locked;
    return PyErr_CheckSignals() != 0;
  };
  Result<void> done;
  {
    const Unlocked unlocked;
    done = self.engine->transfer_sync(id, which, items.list(), ms, is_long(ms) ? interrupted : nullptr);
  }
  if (PyErr_Occurred()) throw nb::python_error();
  unwrap(done);
}

using Class = nb::class_<PyEngine>;

void bind_connections(Class& engine) {
  engine
      .def(
          "connect",
          [](const PyEngine& self, const std::string& id, TimeoutMs ms) {
            unwrap(run_interruptibly(ms, [engine = self.engine, id, ms] { return engine->connect(id, ms); }));
          },
          "remote_id"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs,
          "Connects to the engine of that id. ALREADY_CONNECTED, TIMEOUT, NOT_CONNECTED (nobody listens there), "
          "AUTH_FAILED, UNSUPPORTED (no transport reaches it), NOT_FOUND (no such host).")
      .def(
          "disconnect", [](const PyEngine& self, const std::string& id) { unwrap(self.engine->disconnect(id)); },
          "remote_id"_a, nb::call_guard<Unlocked>(),
          "Ends transfers under way with CANCELLED and the connection; returns when nothing moves. NOT_CONNECTED.")
      .def(
          "connect_async",
          [](const PyEngine& self, const std::string& id, TimeoutMs ms) { unwrap(self.engine->connect_async(id, ms)); },
          "remote_id"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs, nb::call_guard<Unlocked>(),
          "Queues a connect: in order for one remote, side by side for several; see get_async_connect_status(). "
          "RESOURCE_EXHAUSTED.")
      .def(
          "disconnect_async",
          [](const PyEngine& self, const std::string& id) { unwrap(self.engine->disconnect_async(id)); }, "remote_id"_a,
          nb::call_guard<Unlocked>(), "Queues a disconnect behind what is queued for that remote. RESOURCE_EXHAUSTED.")
      .def(
          "get_async_connect_status",
          [](const PyEngine& self, const std::string& id) {
            return unwrap(self.engine->async_connect_outcome(id)).status;
          },
          "remote_id"_a, "TransferStatus of the latest connect_async or disconnect_async of that remote.")
      .def(
          "get_async_connect_error",
          [](const PyEngine& self, const std::string& id) -> nb::object {
            const auto outcome = unwrap(self.engine->async_connect_outcome(id));
            return outcome.error ? make_engine_error(*outcome.error) : nb::none();
          },
          "remote_id"_a, "Why it failed, as an EngineError, or None.")
      .def("send_notify", &send_notify, "remote_id"_a, "name"_a, "msg"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs,
           "Hands a named message (bytes) to the peer's engine and returns when it has it. NOTIFY_FAILED (its queue is "
           "full), TIMEOUT, NOT_CONNECTED, PEER_LOST, PARAM_INVALID (above get_capability(\"MAX_NOTIFY_BYTES\")).")
      .def("get_notifies", &notifies_of, "[(name, msg), ...] that have come, oldest first; does not block.");
}

void bind_transfers(Class& engine) {
  engine
      .def(
          "transfer_sync", &transfer_sync, "remote_id"_a, "op"_a, "descs"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs,
          "Moves all items: \"READ\" from the remote's memory into ours, \"WRITE\" the other way. descs: [(local_addr, "
          "remote_addr, nbytes), ...], an N x 3 array of uint64, or RemoteRegions.pairs(). On an error nothing moves "
          "any "
          "more: NOT_CONNECTED, PARAM_INVALID (names the item), STALE (that memory is gone), PEER_LOST, TIMEOUT.")
      .def(
          "transfer_async",
          [](const PyEngine& self, std::string_view id, std::string_view op, nb::handle descs, TimeoutMs ms) {
            const ItemsArgument items(descs);
            const Op which = op_of(op);
            const Unlocked unlocked;
            return Request{unwrap(self.engine->transfer_async(id, which, items.list(), ms)), self.engine};
          },
          "remote_id"_a, "op"_a, "descs"_a, "timeout_ms"_a = nb::none(),
          "As transfer_sync(), but returns a Request at once. The request ends TIMEOUT when timeout_ms pass first. "
          "Errors of "
          "the list are raised here; STALE gives a request that has FAILED.")
      .def("get_transfer_status", &statuses, "request"_a, "TransferStatus of a request; of a list of them, a list.");
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
  bind_request(module);
  Class engine(module, "Engine", nb::is_weak_referenceable(),
               "One engine: a listener, registered memory, connections. Thread-safe.");
  engine
      .def("__init__", &open, "local_engine"_a = "127.0.0.1", "options"_a = nb::none(),
           "Listens on local_engine (\"ip\", \"ip:port\", \"[::1]:0\", \"host:port\"; port 0 or none: a free one) and "
           "nowhere "
           "else. options: a dict of str, docs/engine.md has them all. ADDR_IN_USE, PARAM_INVALID.")
      .def_prop_ro(
          "id", [](const PyEngine& self) { return self.engine->id(); }, "What peers pass to connect().")
      .def(
          "register_mem",
          [](const PyEngine& self, nb::handle addr, nb::handle nbytes, nb::handle type) {
            const auto address = word_of(addr, "addr"), length = word_of(nbytes, "nbytes");
            const MemType where = type_of(type);
            const Unlocked unlocked;
            return Handle{unwrap(self.engine->register_mem(address, length, where))};
          },
          "addr"_a, "nbytes"_a, "mem_type"_a = "host",
          "Lets peers READ and WRITE [addr, addr + nbytes) from now on, and transfers of ours use it. The memory stays "
          "yours: keep it alive (of a tensor: the tensor) until deregister_mem() returned. The same range again gives "
          "the "
          "same handle, counted; another overlap is PARAM_INVALID. mem_type: \"host\", \"device\" or a MemType; device "
          "memory of an Ascend NPU must lie on 2 MiB boundaries (MISALIGNED).")
      .def(
          "deregister_mem",
          [](const PyEngine& self, const Handle& handle, TimeoutMs ms) {
            unwrap(run_interruptibly(
                ms, [engine = self.engine, handle = handle.handle, ms] { return engine->deregister_mem(handle, ms); }));
          },
          "handle"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs,
          "Refuses the region to everybody and returns when nothing moves in or out of it. BUSY: somebody alive still "
          "uses "
          "it after timeout_ms; it stays refused, call again to wait on. NOT_FOUND: no such handle.")
      .def("describe", &describe, "ranges"_a, "[(addr, nbytes), ...] as bytes that another engine can import.")
      .def(
          "import_desc",
          [](const PyEngine& self, nb::bytes blob) {
            return unwrap(self.engine->import_desc({static_cast<const std::uint8_t*>(blob.data()), blob.size()}));
          },
          "blob"_a, "What another engine described, as RemoteRegions. PARAM_INVALID: not such bytes.")
      .def(
          "get_capability",
          [](const PyEngine& self, std::string_view name) { return unwrap(self.engine->capability(name)); }, "name"_a,
          "A switch (1 or 0) or a limit; docs/engine.md lists the names. PARAM_INVALID: unknown name.")
      .def("stats", &stats_of,
           "A dict: regions, transfers under way, and of each peer which transports ran, bytes, and why not others.")
      .def(
          "close", [](const PyEngine& self) { self.engine->close(); }, nb::call_guard<Unlocked>(),
          "Ends everything; returns when nothing moves and nobody can connect any more. Idempotent.")
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](const PyEngine& self, nb::args) {
        const Unlocked unlocked;
        self.engine->close();
      });
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
