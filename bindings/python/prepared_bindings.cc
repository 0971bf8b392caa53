// Prepared lists for Python: ranges from an array or tuples, indices from an array without a copy or from ints.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <cstring>
#include <optional>

#include "engine_object.h"
#include "errors.h"
#include "interruptible.h"
#include "request.h"
#include "transfer_items.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace onesided::python {
namespace {

// A list as Python owns it: it can be released before its object is.
struct PyPreparedList {
  std::shared_ptr<const PreparedList> list;
};

const PreparedList& held(const PyPreparedList& prepared) {
  if (!prepared.list) raise_invalid("the prepared list was released");
  return *prepared.list;
}

// Indices of one call. An array is not copied: it is kept alive and must not change meanwhile.
class IndexArgument {
 public:
  explicit IndexArgument(nb::handle indices, const char* side) {
    if (array_.open(indices, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) && take_array()) return;
    if (PyObject_CheckBuffer(indices.ptr()) && !PyList_Check(indices.ptr()))
      raise_invalid(
          fmt::format("{} indices: an array must have one dimension, contiguous, of 32- or 64-bit integers", side));
    const auto list = nb::steal(PySequence_Fast(indices.ptr(), "indices"));
    if (!list.is_valid()) {
      PyErr_Clear();
      raise_invalid(fmt::format("{} indices: expected an array or a list of integers", side));
    }
    const Py_ssize_t count = PySequence_Size(list.ptr());
    numbers_.reserve(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) numbers_.push_back(number_at(list, i, side));
    indices_ = std::span<const std::int64_t>(numbers_);
  }
  const Indices& indices() const { return indices_; }

 private:
  static std::int64_t number_at(const nb::object& list, Py_ssize_t place, const char* side) {
    const auto entry = nb::steal(PySequence_GetItem(list.ptr(), place));
    const auto number = nb::steal(entry.is_valid() ? PyNumber_Index(entry.ptr()) : nullptr);
    const long long value = number.is_valid() ? PyLong_AsLongLong(number.ptr()) : -1;
    if (PyErr_Occurred()) {
      PyErr_Clear();
      raise_invalid(fmt::format("{} index at place {}: expected an integer from 0 to 2^63 - 1", side, place));
    }
    return value;
  }

  template <typename Integer>
  bool view() {
    if (reinterpret_cast<std::uintptr_t>(array_->buf) % alignof(Integer) != 0) return false;
    indices_ = std::span(static_cast<const Integer*>(array_->buf), static_cast<std::size_t>(array_->shape[0]));
    return true;
  }

  bool take_array() {
    const char* format = array_->format ? array_->format : "B";
    if (*format == '<' || *format == '=' || *format == '@') ++format;
    if (array_->ndim != 1 || std::strlen(format) != 1) return false;
    const bool is_signed = std::strchr("ilqn", *format), is_unsigned = std::strchr("ILQN", *format);
    if (array_->itemsize == 8) return is_signed ? view<std::int64_t>() : is_unsigned && view<std::uint64_t>();
    if (array_->itemsize == 4) return is_signed ? view<std::int32_t>() : is_unsigned && view<std::uint32_t>();
    return false;
  }

  ArrayView array_;
  std::vector<std::int64_t> numbers_;
  Indices indices_;
};

std::vector<PreparedList::Address> addresses_of(nb::handle ranges) {
  const auto words = rows_of(ranges, 2, "addr, nbytes");
  std::vector<PreparedList::Address> addresses;
  addresses.reserve(words.size() / 2);
  for (std::size_t i = 0; i < words.size(); i += 2) addresses.emplace_back(words[i], words[i + 1]);
  return addresses;
}

PyPreparedList prepare_remote(const PyEngine& self, nb::handle remote, nb::handle ranges, TimeoutMs timeout_ms) {
  const auto addresses = addresses_of(ranges);
  if (const RemoteRegions* described = nullptr; nb::try_cast(remote, described) && described) {
    const Unlocked unlocked;
    return {unwrap(self.engine->prepare_remote(*described, addresses))};
  }
  if (!PyUnicode_Check(remote.ptr())) raise_invalid("remote: expected an engine's id or RemoteRegions");
  const auto id = nb::cast<std::string_view>(remote);
  const Unlocked unlocked;
  return {unwrap(self.engine->prepare_remote(id, addresses, timeout_ms))};
}

Request transfer(const PyEngine& self, std::string_view op, const PyPreparedList& local, nb::handle local_indices,
                 const PyPreparedList& remote, nb::handle remote_indices, TimeoutMs timeout_ms) {
  const Op which = op_of(op);
  const IndexArgument ours(local_indices, "local"), theirs(remote_indices, "remote");
  // Another thread may release the lists meanwhile.
  const auto local_list = local.list, remote_list = remote.list;
  held(local), held(remote);
  const Unlocked unlocked;
  return {unwrap(self.engine->transfer(which, *local_list, ours.indices(), *remote_list, theirs.indices(), timeout_ms)),
          self.engine};
}

}  // namespace

void bind_prepared_list(nb::module_& module) {
  nb::class_<PyPreparedList>(module, "PreparedList",
                             "Ranges of one side, checked and bound once; Engine.transfer() names them by index.")
      .def("__len__", [](const PyPreparedList& self) { return held(self).size(); })
      .def(
          "release", [](PyPreparedList& self) { self.list.reset(); },
          "Forgets the ranges; transfers that were submitted go on. Using the list afterwards is PARAM_INVALID.");
}

void bind_prepared(EngineClass& engine) {
  engine
      .def(
          "prepare_local",
          [](const PyEngine& self, nb::handle ranges) {
            const auto addresses = addresses_of(ranges);
            const Unlocked unlocked;
            return PyPreparedList{unwrap(self.engine->prepare_local(addresses))};
          },
          "ranges"_a,
          "Registered ranges of this engine as a PreparedList: [(addr, nbytes), ...] or an N x 2 array of uint64. "
          "PARAM_INVALID: a range lies in no single registered region.")
      .def("prepare_remote", &prepare_remote, "remote"_a, "ranges"_a, "timeout_ms"_a = Engine::kDefaultTimeoutMs,
           "The same of another engine: by its id, what it has registered now; by RemoteRegions, what it described.")
      .def("transfer", &transfer, "op"_a, "local"_a, "local_indices"_a, "remote"_a, "remote_indices"_a,
           "timeout_ms"_a = nb::none(),
           "Moves local range local_indices[i] from (\"READ\") or to (\"WRITE\") remote range remote_indices[i], for "
           "all "
           "i, and returns a Request at once. Indices: an array of 32- or 64-bit integers, not copied, or a list of "
           "ints. "
           "PARAM_INVALID: an index out of range, lengths that differ, a released list. A list whose region was "
           "deregistered gives a request that has FAILED with STALE.");
}

}  // namespace onesided::python
