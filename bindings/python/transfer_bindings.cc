// Transfers for Python: the items to move, the request, and its results.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>

#include "engine_object.h"
#include "errors.h"
#include "interruptible.h"
#include "request.h"
#include "transfer_items.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace onesided::python {

Op op_of(std::string_view name) {
  if (name == "READ") return Op::kRead;
  if (name == "WRITE") return Op::kWrite;
  raise_invalid(fmt::format("op \"{}\": expected \"READ\" or \"WRITE\"", name));
}

namespace {

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
        throw RaisedError(Error(Status::kNotFound, "the list contains an object that is not a request"));
      all.append(status_or_raise(*one, self.engine));
    }
    return all;
  }
  throw RaisedError(
      Error(Status::kNotFound, "not a request of this engine; expected a result of transfer_async, or a list of them"));
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
    const auto text = fmt::format("the transfer is not finished after {} ms ({} of {} bytes)", timeout_ms.value_or(0),
                                  request.transfer->bytes_done(), request.transfer->bytes_total());
    PyErr_SetString(PyExc_TimeoutError, text.c_str());
    throw nb::python_error();
  }
}

BoundItems bind_pairs(const RemoteRegions& regions, nb::handle pairs) {
  std::size_t width = 0;
  const auto words = shaped_rows_of(pairs, 4, "local_addr, item, offset, nbytes", width);
  BoundItems bound;
  bound.instance = regions.instance();
  for (std::size_t i = 0; i < words.size(); i += width) {
    RemoteRegions::Pair pair{words[i], words[i + 1], words[i + 2], words[i + 3]};
    if (width > 4) pair.rows = {words[i + 4], words[i + 5], words[i + 6]};
    unwrap(regions.bind(pair, bound));
  }
  return bound;
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

void bind_request(nb::module_& module) {
  nb::class_<Request>(module, "Request", "A submitted transfer. Its status becomes final exactly once.")
      .def("status", [](const Request& self) { return self.transfer->status(); })
      .def("wait", &wait_for, "timeout_ms"_a = nb::none(),
           "Blocks until the status is final and returns it. Raises TimeoutError if timeout_ms pass first; the "
           "transfer continues.")
      .def(
          "cancel", [](const Request& self) { self.transfer->cancel(); }, nb::call_guard<Unlocked>(),
          "Ends it early; blocks until no byte of it can move. No-op on a finished request.")
      .def_prop_ro(
          "error",
          [](const Request& self) -> nb::object {
            const auto error = self.transfer->error();
            return error ? make_engine_error(*error) : nb::none();
          },
          "The first cause as an EngineError (.status, .text), or None.")
      .def_prop_ro("bytes_done", [](const Request& self) { return self.transfer->bytes_done(); })
      .def_prop_ro(
          "elapsed_us", [](const Request& self) { return self.transfer->elapsed_us(); },
          "Microseconds from its submission to its end, or to now.")
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

}  // namespace

void bind_transfer_values(nb::module_& module) {
  nb::enum_<TransferStatus>(module, "TransferStatus", nb::is_arithmetic(), "The four statuses of a request.")
      .value("WAITING", TransferStatus::kWaiting)
      .value("COMPLETED", TransferStatus::kCompleted)
      .value("TIMEOUT", TransferStatus::kTimeout)
      .value("FAILED", TransferStatus::kFailed);
  nb::class_<ItemResult>(module, "ItemResult", "The result of one item of a request.")
      .def_ro("status", &ItemResult::status)
      .def_ro("bytes_done", &ItemResult::bytes_done)
      .def("__repr__", [](const ItemResult& r) {
        return fmt::format("ItemResult({}, {} bytes)", status_name(r.status), r.bytes_done);
      });
  nb::class_<BoundItems>(module, "BoundItems",
                         "Items for one transfer, bound to the registrations from which they were described.")
      .def("__len__", [](const BoundItems& bound) { return bound.items.size(); });
  nb::class_<RemoteRegions>(module, "RemoteRegions", "The memory ranges that another engine described.")
      .def_prop_ro("engine_id", &RemoteRegions::engine_id)
      .def("__len__", [](const RemoteRegions& regions) { return regions.items().size(); })
      .def("__getitem__",
           [](const RemoteRegions& regions, std::size_t item) {
             if (item >= regions.items().size()) throw nb::index_error();
             return nb::make_tuple(regions.items()[item].address, regions.items()[item].nbytes);
           })
      .def("pairs", &bind_pairs, "pairs"_a,
           "Binds [(local_addr, item, offset, nbytes), ...] for transfer_sync() and transfer_async(); rows as there.");
  bind_request(module);
  bind_prepared_list(module);
}

void bind_transfers(EngineClass& engine) {
  bind_prepared(engine);
  engine
      .def("transfer_sync", &transfer_sync, "remote_id"_a, "op"_a, "descs"_a,
           "timeout_ms"_a = Engine::kDefaultTimeoutMs,
           "Moves all items and blocks until they have moved: \"READ\" from the remote's memory into the local memory, "
           "\"WRITE\" in the other direction. descs: [(local_addr, remote_addr, nbytes), ...], an N x 3 array of "
           "uint64, or RemoteRegions.pairs(). An item of rows has three numbers more: row_bytes, local_pitch, "
           "remote_pitch; its nbytes is that of all rows (at most 2^20). After an error no byte can move. Errors: "
           "NOT_CONNECTED, PARAM_INVALID (names the item), STALE (that memory was deregistered), PEER_LOST, TIMEOUT.")
      .def(
          "transfer_async",
          [](const PyEngine& self, std::string_view id, std::string_view op, nb::handle descs, TimeoutMs ms) {
            const ItemsArgument items(descs);
            const Op which = op_of(op);
            const Unlocked unlocked;
            return Request{unwrap(self.engine->transfer_async(id, which, items.list(), ms)), self.engine};
          },
          "remote_id"_a, "op"_a, "descs"_a, "timeout_ms"_a = nb::none(),
          "As transfer_sync(), but returns a Request without waiting. If timeout_ms pass first, the request ends with "
          "TIMEOUT. Errors of the list are raised here; STALE gives a request that has FAILED.")
      .def("get_transfer_status", &statuses, "request"_a,
           "The TransferStatus of a request, or a list of them for a list of requests.");
}

}  // namespace onesided::python
