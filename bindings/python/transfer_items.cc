#include "transfer_items.h"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>

#include "errors.h"

namespace nb = nanobind;

namespace onesided::python {
namespace {

[[noreturn]] void bad(const std::string& text) { throw RaisedError(Error(Status::kParamInvalid, text)); }

std::uint64_t number_of(PyObject* value, Py_ssize_t row, const char* what) {
  if (PyLong_CheckExact(value)) [[likely]] {
    const unsigned long long number = PyLong_AsUnsignedLongLong(value);
    if (number != ~0ULL || !PyErr_Occurred()) return number;
    PyErr_Clear();
    bad(fmt::format("item {}: {} must be from 0 to 2^64 - 1", row, what));
  }
  // numpy's integers and the like.
  const auto index = nb::steal(PyNumber_Index(value));
  if (!index.is_valid()) {
    PyErr_Clear();
    bad(fmt::format("item {}: {} must be integers", row, what));
  }
  const unsigned long long number = PyLong_AsUnsignedLongLong(index.ptr());
  if (number == ~0ULL && PyErr_Occurred()) {
    PyErr_Clear();
    bad(fmt::format("item {}: {} must be from 0 to 2^64 - 1", row, what));
  }
  return number;
}

bool is_word(const Py_buffer& buffer) {
  const char* format = buffer.format ? buffer.format : "B";
  if (*format == '<' || *format == '=' || *format == '@') ++format;
  return buffer.itemsize == 8 && std::strlen(format) == 1 && std::strchr("QqLlNn", *format);
}

void check_array(const Py_buffer& buffer, std::size_t columns, const char* what) {
  if (!is_word(buffer) || buffer.ndim != 2 || buffer.shape[1] != static_cast<Py_ssize_t>(columns))
    bad(fmt::format("an array of descriptors must be N x {} ({}) of dtype uint64", columns, what));
}

}  // namespace

std::vector<std::uint64_t> rows_of(nb::handle rows, std::size_t columns, const char* what) {
  std::vector<std::uint64_t> words;
  if (PyObject_CheckBuffer(rows.ptr()) && !PyBytes_Check(rows.ptr())) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(rows.ptr(), &buffer, PyBUF_STRIDED_RO | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      bad("the array of descriptors cannot be read as a buffer");
    }
    const auto release = std::unique_ptr<Py_buffer, void (*)(Py_buffer*)>(&buffer, &PyBuffer_Release);
    check_array(buffer, columns, what);
    words.reserve(static_cast<std::size_t>(buffer.shape[0]) * columns);
    for (Py_ssize_t row = 0; row < buffer.shape[0]; ++row)
      for (Py_ssize_t column = 0; column < buffer.shape[1]; ++column) {
        std::uint64_t word = 0;
        std::memcpy(&word, static_cast<char*>(buffer.buf) + row * buffer.strides[0] + column * buffer.strides[1],
                    sizeof(word));
        words.push_back(word);
      }
    return words;
  }
  const auto sequence = nb::steal(PySequence_Fast(rows.ptr(), ""));
  if (!sequence.is_valid()) {
    PyErr_Clear();
    bad(fmt::format("expected a list of tuples ({}) or an N x {} array of uint64", what, columns));
  }
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence.ptr());
  words.reserve(static_cast<std::size_t>(count) * columns);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* row = PySequence_Fast_GET_ITEM(sequence.ptr(), i);
    const auto tuple = nb::steal(PySequence_Fast(row, ""));
    if (!tuple.is_valid() || PySequence_Fast_GET_SIZE(tuple.ptr()) != static_cast<Py_ssize_t>(columns)) {
      PyErr_Clear();
      bad(fmt::format("item {}: expected ({})", i, what));
    }
    for (std::size_t k = 0; k < columns; ++k)
      words.push_back(number_of(PySequence_Fast_GET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(k)), i, what));
  }
  return words;
}

ItemsArgument::ItemsArgument(nb::handle descs) {
  constexpr const char* kWhat = "local_addr, remote_addr, nbytes";
  static_assert(sizeof(TransferItem) == 3 * sizeof(std::uint64_t) && std::is_trivially_copyable_v<TransferItem>);
  if (const BoundItems* bound = nullptr; nb::try_cast(descs, bound) && bound) {
    list_ = bound->list();
    return;
  }
  if (PyObject_CheckBuffer(descs.ptr()) && !PyBytes_Check(descs.ptr()) &&
      PyObject_GetBuffer(descs.ptr(), &buffer_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0) {
    has_buffer_ = true;
    const bool aligned = reinterpret_cast<std::uintptr_t>(buffer_.buf) % alignof(TransferItem) == 0;
    if (is_word(buffer_) && buffer_.ndim == 2 && buffer_.shape[1] == 3 && aligned) {
      list_.items = {static_cast<const TransferItem*>(buffer_.buf), static_cast<std::size_t>(buffer_.shape[0])};
      return;
    }
  }
  PyErr_Clear();
  const auto words = rows_of(descs, 3, kWhat);
  items_.reserve(words.size() / 3);
  for (std::size_t i = 0; i < words.size(); i += 3) items_.push_back({words[i], words[i + 1], words[i + 2]});
  list_.items = items_;
}

ItemsArgument::~ItemsArgument() {
  if (has_buffer_) PyBuffer_Release(&buffer_);
}

}  // namespace onesided::python
