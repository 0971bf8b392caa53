#include "transfer_items.h"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>

#include "errors.h"

namespace nb = nanobind;

namespace onesided::python {
namespace {

// row_bytes, local_pitch, remote_pitch
constexpr std::size_t kShapeColumns = 3;

std::uint64_t number_of(PyObject* value, Py_ssize_t row, const char* what) {
  if (PyLong_CheckExact(value)) [[likely]] {
    const unsigned long long number = PyLong_AsUnsignedLongLong(value);
    if (number != ~0ULL || !PyErr_Occurred()) return number;
    PyErr_Clear();
    raise_invalid(fmt::format("item {}: {} must be from 0 to 2^64 - 1", row, what));
  }
  // numpy's integers and the like.
  const auto index = nb::steal(PyNumber_Index(value));
  if (!index.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    raise_invalid(fmt::format("item {}: {} must be integers", row, what));
  }
  const unsigned long long number = PyLong_AsUnsignedLongLong(index.ptr());
  if (number == ~0ULL && PyErr_Occurred()) {
    PyErr_Clear();
    raise_invalid(fmt::format("item {}: {} must be from 0 to 2^64 - 1", row, what));
  }
  return number;
}

bool is_word(const ArrayView& array) {
  const char* format = array->format ? array->format : "B";
  if (*format == '<' || *format == '=' || *format == '@') ++format;
  return array->itemsize == 8 && std::strlen(format) == 1 && std::strchr("QqLlNn", *format);
}

// Copies the list, because reading the numbers may run the caller's code, which may change the list. Raises the error
// of `expected`, except if iterating raised an exception.
template <typename Text>
nb::object tuple_of(PyObject* sequence, const Text& expected) {
  auto tuple = nb::steal(PySequence_Tuple(sequence));
  if (tuple.is_valid()) return tuple;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
  PyErr_Clear();
  raise_invalid(expected());
}

std::vector<std::uint64_t> words_of(const ArrayView& array, std::size_t columns, const char* what) {
  if (!is_word(array) || array->ndim != 2 || array->shape[1] != static_cast<Py_ssize_t>(columns))
    raise_invalid(fmt::format("an array of descriptors must be N x {} ({}) of dtype uint64", columns, what));
  std::vector<std::uint64_t> words;
  words.reserve(static_cast<std::size_t>(array->shape[0]) * columns);
  for (Py_ssize_t row = 0; row < array->shape[0]; ++row)
    for (Py_ssize_t column = 0; column < array->shape[1]; ++column) {
      std::uint64_t word = 0;
      std::memcpy(&word, static_cast<char*>(array->buf) + row * array->strides[0] + column * array->strides[1],
                  sizeof(word));
      words.push_back(word);
    }
  return words;
}

// Rows of `columns` words or, where the rows have them, of `columns + more`. `width` becomes the greater number if any
// row has it.
std::vector<std::uint64_t> rows_of(nb::handle rows, std::size_t columns, std::size_t more, const char* what,
                                   std::size_t& width) {
  width = columns;
  if (ArrayView array; array.open(rows, PyBUF_STRIDED_RO | PyBUF_FORMAT)) {
    if (more > 0 && array->ndim == 2 && array->shape[1] == static_cast<Py_ssize_t>(columns + more)) width += more;
    return words_of(array, width, what);
  }
  const auto list = tuple_of(rows.ptr(), [&] {
    return fmt::format("expected a list of tuples ({}) or an N x {} array of uint64", what, columns);
  });
  const Py_ssize_t count = PyTuple_Size(list.ptr());
  const auto wide = static_cast<Py_ssize_t>(columns + more);
  for (Py_ssize_t i = 0; more > 0 && i < count; ++i) {
    PyObject* row = PyTuple_GetItem(list.ptr(), i);
    const bool is_wide =
        (PyTuple_CheckExact(row) && PyTuple_Size(row) == wide) || (PyList_CheckExact(row) && PyList_Size(row) == wide);
    if (is_wide) width = columns + more;
  }
  std::vector<std::uint64_t> words;
  words.reserve(static_cast<std::size_t>(count) * width);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* row = PyTuple_GetItem(list.ptr(), i);
    const auto expected = [&] { return fmt::format("item {}: expected ({})", i, what); };
    const auto tuple = PyTuple_CheckExact(row) ? nb::borrow(row) : tuple_of(row, expected);
    const auto given = static_cast<std::size_t>(PyTuple_Size(tuple.ptr()));
    if (given != columns && given != width) raise_invalid(expected());
    for (std::size_t k = 0; k < given; ++k)
      words.push_back(number_of(PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(k)), i, what));
    words.resize(words.size() + width - given);
  }
  return words;
}

}  // namespace

bool ArrayView::open(nb::handle object, int kind) {
  if (PyObject_CheckBuffer(object.ptr()) && !PyBytes_Check(object.ptr()))
    is_open_ = PyObject_GetBuffer(object.ptr(), &buffer_, kind) == 0;
  PyErr_Clear();
  return is_open_;
}

std::vector<std::uint64_t> rows_of(nb::handle rows, std::size_t columns, const char* what) {
  std::size_t width = columns;
  return rows_of(rows, columns, 0, what, width);
}

std::vector<std::uint64_t> shaped_rows_of(nb::handle rows, std::size_t columns, const char* what, std::size_t& width) {
  return rows_of(rows, columns, kShapeColumns, what, width);
}

ItemsArgument::ItemsArgument(nb::handle descs) {
  constexpr const char* kWhat = "local_addr, remote_addr, nbytes";
  static_assert(sizeof(TransferItem) == 3 * sizeof(std::uint64_t) && std::is_trivially_copyable_v<TransferItem>);
  if (const BoundItems* bound = nullptr; nb::try_cast(descs, bound) && bound) {
    list_ = bound->list();
    return;
  }
  if (array_.open(descs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(array_->buf) % alignof(TransferItem) == 0;
    if (is_word(array_) && array_->ndim == 2 && array_->shape[1] == 3 && aligned) {
      list_.items = {static_cast<const TransferItem*>(array_->buf), static_cast<std::size_t>(array_->shape[0])};
      return;
    }
  }
  std::size_t width = 0;
  const auto words = shaped_rows_of(descs, 3, kWhat, width);
  items_.reserve(words.size() / width);
  for (std::size_t i = 0; i < words.size(); i += width) {
    items_.push_back({words[i], words[i + 1], words[i + 2]});
    if (width > 3) rows_.push_back({words[i + 3], words[i + 4], words[i + 5]});
  }
  list_.items = items_;
  list_.rows = rows_;
}

}  // namespace onesided::python
