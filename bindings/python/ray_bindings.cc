// Bindings of the exchange (published objects, fetches) for the Ray transport. Everything that may block releases the
// GIL; a fetch keeps its exchange alive.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "buffer_protocol.h"
#include "engine_object.h"
#include "errors.h"
#include "interpreter_lock.h"
#include "onesided/node/exchange/exchange.h"
#include "onesided/node/exchange/receive_pool.h"
#include "onesided/node/exchange/version_stamp.h"

namespace nb = nanobind;

namespace onesided::python {
namespace {

// (address, bytes, 1 for device memory, the memory's address, its bytes, its number) per tensor.
std::vector<TensorSpan> to_spans(const nb::sequence& tensors) {
  std::vector<TensorSpan> spans;
  spans.reserve(nb::len(tensors));
  for (const nb::handle tensor : tensors) {
    const auto fields = nb::cast<nb::tuple>(tensor);
    if (fields.size() != 6) throw nb::value_error("a tensor is described by exactly six numbers");
    const auto type = nb::cast<std::uint64_t>(fields[2]) ? MemType::kDevice : MemType::kHost;
    spans.push_back({.bytes = {nb::cast<std::uint64_t>(fields[0]), nb::cast<std::uint64_t>(fields[1]), type},
                     .whole = {nb::cast<std::uint64_t>(fields[3]), nb::cast<std::uint64_t>(fields[4]), type},
                     .memory = nb::cast<std::uint64_t>(fields[5])});
  }
  return spans;
}

const char* name_of(FetchState state) {
  switch (state) {
    case FetchState::kRunning: return "RUNNING";
    case FetchState::kDone: return "DONE";
    case FetchState::kFailed: return "FAILED";
    case FetchState::kAborted: return "ABORTED";
  }
  return "UNKNOWN";
}

// A fetch and the exchange it needs. A value; thread-safe, as Fetch is.
struct PyFetch {
  std::shared_ptr<Exchange> exchange;
  std::shared_ptr<Fetch> fetch;

  // Dropping the last reference may stop a running READ, which must not hold the GIL.
  ~PyFetch() {
    if (!fetch) return;
    const Unlocked unlocked;
    fetch.reset();
  }
  PyFetch(std::shared_ptr<Exchange> its_exchange, std::shared_ptr<Fetch> its_fetch)
      : exchange(std::move(its_exchange)), fetch(std::move(its_fetch)) {}
  PyFetch(PyFetch&&) = default;
  PyFetch& operator=(PyFetch&&) = delete;
};

// An exchange that keeps its engine alive. Its destruction may deregister memory, so it runs without the GIL.
struct PyExchange {
  explicit PyExchange(std::shared_ptr<Exchange> made) : exchange(std::move(made)) {}
  PyExchange(const PyExchange&) = delete;
  PyExchange& operator=(const PyExchange&) = delete;
  ~PyExchange() {
    const Unlocked unlocked;
    exchange.reset();
  }
  std::shared_ptr<Exchange> exchange;
};

void open(PyExchange* self, const PyEngine& engine, std::size_t max_peers, bool keep_idle) {
  new (self) PyExchange(std::make_shared<Exchange>(make_engine_port(engine.engine),
                                                   ExchangeOptions{.max_peers = max_peers, .keep_idle = keep_idle}));
}

nb::tuple publish(PyExchange& self, const std::string& object_id, const nb::sequence& tensors) {
  const std::vector<TensorSpan> spans = to_spans(tensors);
  auto published = [&] {
    const Unlocked unlocked;
    return self.exchange->objects().publish(object_id, spans);
  }();
  const TensorStore::Published object = unwrap(std::move(published));
  return nb::make_tuple(nb::bytes(object.desc.data(), object.desc.size()), object.meta_version);
}

PyFetch fetch(PyExchange& self, std::string object_id, std::string engine_id, std::uint64_t meta_version,
              const nb::bytes& desc, const nb::sequence& targets, std::int64_t connect_timeout_ms,
              std::optional<std::int64_t> transfer_timeout_ms) {
  FetchSpec spec{.object_id = std::move(object_id),
                 .engine_id = std::move(engine_id),
                 .meta_version = meta_version,
                 .desc = std::string(desc.c_str(), desc.size()),
                 .targets = to_spans(targets),
                 .connect_timeout_ms = connect_timeout_ms,
                 .transfer_timeout_ms = transfer_timeout_ms};
  auto started = [&] {
    const Unlocked unlocked;
    return self.exchange->fetches().start(std::move(spec));
  }();
  return {self.exchange, unwrap(std::move(started))};
}

nb::dict exchange_stats(PyExchange& self) {
  const auto regions = self.exchange->regions().counts();
  const auto objects = self.exchange->objects().counts();
  const auto peers = self.exchange->peers().counts();
  nb::dict stats;
  stats["registrations"] = regions.registrations;
  stats["deregistrations"] = regions.deregistrations;
  stats["regions"] = regions.regions;
  stats["region_bytes"] = regions.nbytes;
  stats["objects"] = objects.objects;
  stats["objects_published"] = objects.published;
  stats["objects_released"] = objects.released;
  stats["object_bytes"] = objects.nbytes;
  stats["peers"] = peers.peers;
  stats["connects"] = peers.connects;
  stats["connection_reuses"] = peers.reuses;
  stats["evictions"] = peers.evictions;
  return stats;
}

// Wakes up periodically for signals only (Ctrl-C must not wait for a transfer); the end of the transfer wakes it
// immediately.
const char* wait(const PyFetch& self, std::optional<std::int64_t> timeout_ms) {
  constexpr std::int64_t kSignalsMs = 200;
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  while (true) {
    const auto state = [&] {
      const Unlocked unlocked;
      return self.fetch->wait(std::min(deadline, Deadline::after_ms(kSignalsMs)));
    }();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (state != FetchState::kRunning || deadline.passed()) return name_of(state);
  }
}

nb::object fetch_error(const PyFetch& self) {
  const auto error = self.fetch->error();
  if (!error) return nb::none();
  return nb::make_tuple(std::string(status_name(error->status())), error->to_string());
}

void bind_fetch(nb::module_& module) {
  nb::class_<PyFetch>(module, "Fetch", "The fetch of one object; made by Exchange.fetch().")
      .def("wait", &wait, nb::arg("timeout_ms") = nb::none(),
           "Blocks without polling until it has ended (DONE, FAILED, ABORTED) or timeout_ms have passed (RUNNING).")
      .def(
          "abort",
          [](const PyFetch& self) {
            const Unlocked unlocked;
            self.fetch->abort();
          },
          "Blocks until no byte can be written into the targets.")
      .def_prop_ro("state", [](const PyFetch& self) { return name_of(self.fetch->state()); })
      .def_prop_ro("error", &fetch_error, "(status, text), or None.")
      .def_prop_ro("nbytes", [](const PyFetch& self) { return self.fetch->nbytes(); })
      .def_prop_ro("elapsed_us", [](const PyFetch& self) { return self.fetch->elapsed_us(); });
}

void bind_exchange(nb::module_& module) {
  nb::class_<PyExchange>(module, "Exchange", "Published objects and fetches of one engine. Thread-safe.")
      .def("__init__", &open, nb::arg("engine"), nb::arg("max_peers") = 1000, nb::arg("keep_idle") = true)
      .def("publish", &publish, nb::arg("object_id"), nb::arg("tensors"), "-> (description, meta version)")
      .def(
          "release",
          [](PyExchange& self, const std::string& object_id) {
            const Unlocked unlocked;
            return self.exchange->objects().release(object_id);
          },
          nb::arg("object_id"), "Unpublishes the object. False if there is no such object.")
      .def(
          "find",
          [](PyExchange& self, const std::string& object_id) -> nb::object {
            const auto found = self.exchange->objects().find(object_id);
            if (!found) return nb::none();
            return nb::make_tuple(found->nbytes, found->tensors);
          },
          nb::arg("object_id"), "(bytes, tensors) of a published object, or None.")
      .def(
          "memory_gone",
          [](PyExchange& self, std::uint64_t memory) {
            const Unlocked unlocked;
            self.exchange->regions().memory_freed(memory);
          },
          nb::arg("memory"), "The memory of this number is about to be freed: ends its registrations.")
      .def("fetch", &fetch, nb::arg("object_id"), nb::arg("engine_id"), nb::arg("meta_version"), nb::arg("desc"),
           nb::arg("targets"), nb::arg("connect_timeout_ms"), nb::arg("transfer_timeout_ms") = nb::none())
      .def(
          "abort",
          [](PyExchange& self, const std::string& object_id) {
            const Unlocked unlocked;
            return self.exchange->fetches().abort(object_id);
          },
          nb::arg("object_id"), "Aborts the running fetches of the object; returns their number.")
      .def("stats", &exchange_stats);
}

// A receive buffer for torch.frombuffer and the like, which keep it and its memory alive.
struct PyBlock {
  ReceivePool::Block block;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const ReceivePool::Block& block = nb::inst_ptr<PyBlock>(self)->block;
  return PyBuffer_FillInfo(view, self, block.address(), static_cast<Py_ssize_t>(block.nbytes()), /*readonly=*/0, flags);
}

PyType_Slot block_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

struct PyReceivePool {
  std::shared_ptr<ReceivePool> pool;
};

nb::list allocate(PyReceivePool& self, const std::vector<std::uint64_t>& sizes) {
  std::vector<ReceivePool::Block> blocks;
  blocks.reserve(sizes.size());
  {
    const Unlocked unlocked;
    for (const std::uint64_t nbytes : sizes) blocks.push_back(unwrap(self.pool->allocate(nbytes)));
  }
  nb::list all;
  for (ReceivePool::Block& block : blocks) all.append(nb::cast(PyBlock{std::move(block)}));
  return all;
}

void bind_receive_pool(nb::module_& module) {
  nb::class_<PyBlock>(module, "ReceiveBlock", nb::type_slots(block_slots), "A writable buffer from a ReceivePool.")
      .def_prop_ro("address",
                   [](const PyBlock& self) { return reinterpret_cast<std::uintptr_t>(self.block.address()); })
      .def_prop_ro("nbytes", [](const PyBlock& self) { return self.block.nbytes(); });
  nb::class_<PyReceivePool>(module, "ReceivePool", "Host memory for received objects, registered once. Thread-safe.")
      .def(
          "__init__",
          [](PyReceivePool* self, const PyExchange& exchange, std::uint64_t max_bytes) {
            new (self) PyReceivePool{unwrap(ReceivePool::create(exchange.exchange->engine(), max_bytes))};
          },
          nb::arg("exchange"), nb::arg("max_bytes") = 0)
      .def("allocate", &allocate, nb::arg("sizes"), "One block for each size (> 0 bytes), or none at all.")
      .def(
          "trim", [](PyReceivePool& self) { return self.pool->trim(); }, nb::call_guard<Unlocked>(),
          "Frees unused segments; returns their bytes.")
      .def("stats", [](PyReceivePool& self) {
        const auto counts = self.pool->counts();
        nb::dict stats;
        stats["segments"] = counts.segments;
        stats["registrations"] = counts.registrations;
        stats["reserved_bytes"] = counts.reserved_bytes;
        stats["used_bytes"] = counts.used_bytes;
        return stats;
      });
}

void bind_version_stamp(nb::module_& module) {
  nb::class_<VersionStamp>(module, "VersionStamp",
                           "Lets readers distinguish a complete version of some memory from a partly written one.")
      .def(nb::init<>())
      .def_prop_ro("address", [](const VersionStamp& self) { return reinterpret_cast<std::uintptr_t>(&self.words()); })
      .def_prop_ro("nbytes", [](const VersionStamp&) { return VersionStamp::kBytes; })
      .def_prop_ro("version", &VersionStamp::version)
      .def("begin", &VersionStamp::begin, "Starts an update: readers refuse data that they read from now on.")
      .def(
          "end_as", &VersionStamp::end_as, nb::arg("version"),
          "Ends the update with this version. False, and nothing changes, unless it is greater than every earlier one.")
      .def("end", &VersionStamp::end, "Ends the update; returns the new version.")
      .def_static(
          "read", [](nb::bytes bytes) { return VersionStamp::parse({bytes.c_str(), bytes.size()}); }, nb::arg("bytes"),
          "The version in a copy of the stamp, or None while it is being written.");
}

}  // namespace

void bind_ray(nb::module_& module) {
  bind_fetch(module);
  bind_exchange(module);
  bind_receive_pool(module);
  bind_version_stamp(module);
}

}  // namespace onesided::python
